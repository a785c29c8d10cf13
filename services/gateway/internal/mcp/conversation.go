package mcp

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// conversation is what an external agent's calls are of, as a hosted agent's are of a run: a session, or without sessions
// what one token does for a while.
type conversation struct {
	who        auth.Agent
	connection string // the one that is served; empty: all
	session    string // the protocol's id of it; empty: the protocol has none
	server     *mcp.Server
	names      names

	ctx  context.Context // ends with the conversation, and everything that is under way in it
	over context.CancelFunc

	open int       // requests under way, of one without a session; guarded by sessions
	used time.Time // the same

	mu    sync.Mutex
	id    id.Conversation
	calls int
	began time.Time
	taint []string
	held  map[string]held // calls that wait for a person, by what was asked for
	shown []id.Call       // whose approval the client was shown
	tasks bool            // the session's version has tasks
}

// Bounds of a conversation without a session: its calls are on one subject.
const (
	maxCalls = 512
	maxAge   = time.Hour
)

// run is what the next call is said under. Without sessions a new conversation begins now and then; what the agent has read
// goes with it.
func (c *conversation) run(now time.Time) id.Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == "" || c.session == "" && (c.calls >= maxCalls || now.Sub(c.began) > maxAge) {
		c.id, c.calls, c.began = id.New[id.Conversation](), 0, now
	}
	c.calls++
	return c.id.Run()
}

func (c *conversation) tainted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.taint)
}

func (c *conversation) addTaint(origins []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range origins {
		if !slices.Contains(c.taint, o) {
			c.taint = append(c.taint, o)
		}
	}
}

func (c *conversation) sessionID() string { return c.session }
