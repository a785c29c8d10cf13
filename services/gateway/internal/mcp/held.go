package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// held is a call of a conversation that waits for a person.
type held struct {
	standing
	since time.Time
}

// Bounds of the calls of one conversation that are remembered while a person decides.
const (
	maxHeld  = 64
	heldLife = 24 * time.Hour
)

// statePrefix is in front of what a client gives back of ours; what a provider's server gave out is passed on to it.
const statePrefix = "execwarden:"

// resumed finds the call that a request asks for again: by the token that the answer before gave, or because it is the same
// call; and under what it is remembered, empty when there is none. Problems: not_found for a token of no call of this agent's tool.
func (e *Endpoint) resumed(ctx context.Context, c *conversation, q request, key string) (at standing, under string, err error) {
	token, _ := q.meta["execwarden/resume"].(string)
	if rest, ours := strings.CutPrefix(q.state, statePrefix); ours {
		token = rest
	}
	if token == "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		if h, ok := c.held[key]; ok {
			return h.standing, key, nil
		}
		return at, "", nil
	}
	at, r, err := e.find(ctx, c, token)
	if problem.CodeOf(err) == problem.NotFound || err == nil && at.tool != q.tool {
		return at, "", problem.New(problem.NotFound, "no call of this tool waits under that token; make the call again")
	}
	return at, keyOf(r.Tool, r.Body), err
}

// keyOf is what the same call again is known by.
func keyOf(tool string, with call.Args) string {
	return tool + "\x00" + permit.Digest(with.Args, with.Input)
}

func (c *conversation) hold(key string, at standing, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var oldest string
	for k, h := range c.held {
		if now.Sub(h.since) > heldLife {
			delete(c.held, k)
		} else if oldest == "" || h.since.Before(c.held[oldest].since) {
			oldest = k
		}
	}
	if len(c.held) >= maxHeld {
		delete(c.held, oldest) // it is decided and recorded all the same; asked for again, it is a new call
	}
	if _, known := c.held[key]; !known {
		c.held[key] = held{at, now}
	}
}

// settled forgets a call whose outcome is being answered, whatever it was asked for again by.
func (c *conversation) settled(call id.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.held, func(_ string, h held) bool { return h.call == call })
}

// approving is what is done for a client while a person decides.
type approving struct {
	e       *Endpoint
	c       *conversation
	at      standing
	link    string
	reason  string
	session *mcp.ServerSession
	began   time.Time
	said    time.Time
	byURL   bool // the client shows people a link
	asked   bool
	modern  bool
	task    taskMode
	patient bool // it is waited for, however long it takes
}

func (e *Endpoint) approving(c *conversation, q request, at standing, key string, session *mcp.ServerSession, h *call.Held) *approving {
	c.hold(key, at, time.Now())
	a := &approving{e: e, c: c, at: at, reason: h.Reason, session: session, began: time.Now(), modern: c.session == "",
		link: e.approvalLink(c, at, h), byURL: showsLinks(client(q.of)), task: q.task, patient: q.patient}
	return a
}

// showsLinks says whether a client shows people links.
func showsLinks(about call.Client) bool {
	var caps mcp.ClientCapabilities
	return json.Unmarshal(about.Capabilities, &caps) == nil && caps.Elicitation != nil && caps.Elicitation.URL != nil
}

// waitsFor tells that a call is not decided yet, and where it is.
func waitsFor(tool, reason, link string) string {
	return fmt.Sprintf("%s waits for a person's approval (%s): %s", tool, reason, link)
}

// progressEvery is how often a client is told that its call waits still.
const progressEvery = 5 * time.Second

// step goes on while a call is held: it tells the client where people decide, or answers once that took too long. The client
// speaks for the agent, so it is given a link and never asked itself.
func (a *approving) step(ctx context.Context, t *teller) (map[string]json.RawMessage, error) {
	words := waitsFor(a.at.tool, a.reason, a.link)
	switch {
	case a.task == wanted:
		return a.e.created(ctx, a.c, a.at)
	case a.task == offered:
		if time.Since(a.began) >= min(soon, a.e.Limits.HeldWait) {
			return a.e.created(ctx, a.c, a.at)
		}
	case a.modern && a.byURL:
		if time.Since(a.began) >= min(soon, a.e.Limits.HeldWait) {
			return a.input(words), nil
		}
	case !a.modern && a.byURL && !a.asked:
		a.asked = true
		t.asking.Go(func() {
			_, _ = a.session.Elicit(t.open, &mcp.ElicitParams{Meta: t.related, Mode: "url", Message: words, URL: a.link, ElicitationID: string(a.at.call)}) // what the client says decides nothing
		})
	}
	if t.token != nil && time.Since(a.said) >= progressEvery {
		a.said = time.Now()
		_ = a.session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: t.token, Progress: time.Since(a.began).Seconds(), Message: words})
	}
	if a.patient || time.Since(a.began) < a.e.Limits.HeldWait {
		return nil, nil
	}
	return a.waiting(words), nil
}

// soon is how long an answer waits before a client of the newer protocol is asked to have a person decide: many decide at
// once, and a policy may.
const soon = time.Second

// input asks the client, by its result, to show a person the link, and to ask again (MCP 2026-07-28, multi round-trip requests).
func (a *approving) input(words string) members {
	out := members{"resultType": json.RawMessage(`"input_required"`)}
	out["inputRequests"], _ = json.Marshal(map[string]any{"approval": map[string]any{"method": "elicitation/create",
		"params": linkParams(words, a.link, a.at.call)}})
	out["requestState"], _ = json.Marshal(statePrefix + ticket(a.at))
	return out
}

// linkParams are those of an elicitation that shows a person a link.
func linkParams(words, link string, of id.Call) map[string]string {
	return map[string]string{"mode": "url", "message": words, "url": link, "elicitationId": string(of)}
}

// waiting answers that a call is not decided yet, and how to ask for it again.
func (a *approving) waiting(words string) members {
	status := struct {
		Status   string  `json:"status"`
		Call     id.Call `json:"call"`
		Tool     string  `json:"tool"`
		Approval string  `json:"approval_url"`
		Resume   string  `json:"resume_token"`
	}{string(problem.Held), a.at.call, a.at.tool, a.link, ticket(a.at)}
	raw, _ := json.Marshal(status) // of plain text
	out := plain(raw, false, a.modern)
	out["content"], _ = json.Marshal([]map[string]string{{"type": "text", "text": words + ". Nothing was done yet. Make the same call again to see whether it was approved; it is made once."}})
	out["_meta"], _ = json.Marshal(map[string]string{"execwarden/outcome": string(problem.Held), "execwarden/resume": ticket(a.at)})
	return out
}

// over tells the client that the person's part is done.
func (a *approving) over(ctx context.Context) {
	if a == nil || !a.asked || a.modern {
		return
	}
	_ = a.session.NotifyElicitationComplete(ctx, &mcp.ElicitationCompleteParams{ElicitationID: string(a.at.call)}) // it answers anyway
}
