package mcp

//lint:file-ignore SA1019 sampling and roots are to leave the protocol in 2027; the servers of today ask for them

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// asks tells whose call a server asks in: the question is read along on the stream of a call before the SDK hands it over,
// without saying where it came. One that comes beside all calls is of the only one that is under way; of several it could be any.
type asks struct {
	mu      sync.Mutex
	open    []*exchange // calls under way in which the client can be asked
	waiting []asked
}

// enter says that a call begins.
func (a *asks) enter(x *exchange) {
	if a == nil || x.client == nil || x.client.Ask == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = append(a.open, x)
}

type asked struct {
	method string
	client *upstream.Client
}

// maxAsks is how many questions of one session may wait. A server that asks more is not answered.
const maxAsks = 64

func (a *asks) came(method string, x *exchange) {
	if a == nil || x.client == nil || x.client.Ask == nil || x.raw() != nil {
		return // of a list, or of a call that was answered already
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) < maxAsks {
		a.waiting = append(a.waiting, asked{method, x.client})
	}
}

func (a *asks) take(method string) *upstream.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, w := range a.waiting {
		if w.method == method {
			a.waiting = append(a.waiting[:i], a.waiting[i+1:]...)
			return w.client
		}
	}
	var only *upstream.Client
	for _, x := range a.open {
		switch {
		case x.raw() != nil: // it was answered
		case only != nil:
			return nil
		default:
			only = x.client
		}
	}
	return only
}

// leave says that a call is over, and forgets what was asked in it that nobody took.
func (a *asks) leave(x *exchange) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = slices.DeleteFunc(a.open, func(o *exchange) bool { return o == x })
	a.waiting = slices.DeleteFunc(a.waiting, func(w asked) bool { return w.client == x.client })
}

// answer has the client of the call answer what a server asks. It runs in a goroutine of the SDK's, where a panic would end the
// process for what a server said.
func (a *asks) answer(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (answer mcp.Result, err error) {
		defer func() {
			if why := recover(); why != nil {
				answer, err = nil, problem.New(problem.Internal, "the question could not be answered")
			}
		}()
		switch method {
		case "elicitation/create":
			answer = &mcp.ElicitResult{}
		case "sampling/createMessage":
			answer = &mcp.CreateMessageWithToolsResult{}
		case "roots/list":
			answer = &mcp.ListRootsResult{}
		default:
			return next(ctx, method, r)
		}
		c := a.take(method)
		if c == nil {
			return nil, problem.New(problem.Denied, "nothing is asked outside of a call, and of several calls it has to be asked on the stream of one")
		}
		params, err := json.Marshal(r.GetParams())
		if err != nil {
			return nil, problem.Wrap(err, problem.Invalid, "the question cannot be read")
		}
		raw, err := c.Ask(ctx, method, params)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(raw, answer); err != nil {
			return nil, problem.Wrap(err, problem.Invalid, "the client's answer cannot be read")
		}
		return answer, nil
	}
}
