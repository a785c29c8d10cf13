package toolbroker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/declare"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

// The most bytes of the declarations of an agent's tools: for its model, which reads them at each step of a run, and for
// people. The latter have to fit into one answer.
const (
	forModel    = 24 << 10
	forPeople   = 512 << 10
	mostEscaped = 900 << 10
)

func escaped(text string) int {
	raw, _ := json.Marshal(text) // no text fails
	return len(raw)
}

// showTypes declares the tools that an agent's scripts may call, outside of any run.
func (s *Service) showTypes(_ context.Context, who rpc.Caller, q ask.ShowTypes) (ask.Types, error) {
	if err := s.view.Current(); err != nil {
		return ask.Types{}, err
	}
	known := s.state.Known(who.Tenant, q.Agent, "")
	if known.Agent == nil || known.Agent.Removed {
		return ask.Types{}, problem.New(problem.NotFound, "there is no agent %s", id.Name(q.Agent))
	}
	may, most := s.mayCall(who.Tenant, q.Agent, ""), forPeople
	if q.Model {
		most = forModel
	}
	w := s.declare(who.Tenant, may, most)
	for escaped(w.Text) > mostEscaped { // what JSON escapes is worst of what nobody meant to be read
		most /= 2
		w = s.declare(who.Tenant, may, most)
	}
	return ask.Types{Types: w.Text, Tools: w.Tools, Bare: w.Bare, Left: w.Left, Runtime: known.Agent.Runtime.Enabled}, nil
}

// typesForModel tells which tools scripts may call, "" when they may call none. Of folded connections it is what a model
// learns their tools from without asking.
func (s *Service) typesForModel(tenant id.Tenant, may []policy.Tool) string {
	w := s.declare(tenant, may, forModel)
	if w.Tools == 0 {
		return ""
	}
	text := "The tools that scripts may call:\n" + w.Text
	if w.Bare+w.Left > 0 {
		text += fmt.Sprintf("Where %s and %s are offered for a connection, they tell of its tools that are not declared in full.\n",
			connection.SearchOperations, connection.DescribeOperation)
	}
	return text
}

// declare writes the tools that a script may call, of those that the agent may. A script starts no scripts.
func (s *Service) declare(tenant id.Tenant, may []policy.Tool, most int) declare.Written {
	var tools []*declare.Tool
	for _, t := range may {
		if t.Route != call.Script && declare.Callable(t.Full) {
			tools = append(tools, s.declaration(tenant, t))
		}
	}
	return declare.WriteScript(tools, most)
}

// declared is the declarations of a connection's tools as they were listed last.
type declared struct {
	tools []connection.Tool
	of    map[string]*declare.Tool
}

// declaration gives a tool's declaration, which is made once a listing: a large schema takes its time.
func (s *Service) declaration(tenant id.Tenant, t policy.Tool) *declare.Tool {
	name, short, _ := strings.Cut(t.Full, ".")
	if t.Route != call.Upstream {
		return declare.New(name, t.Tool)
	}
	key := connectionKey{tenant, id.Connection("con_" + name)}
	tools := s.state.Listed(tenant, key.connection)
	s.declaring.Lock()
	defer s.declaring.Unlock()
	have, ok := s.declarations[key]
	if !ok || !sameListing(have.tools, tools) {
		have = declared{tools, map[string]*declare.Tool{}}
		s.declarations[key] = have
	}
	made, ok := have.of[short]
	if !ok {
		made = declare.New(name, t.Tool)
		if slices.ContainsFunc(tools, func(l connection.Tool) bool { return l.Name == short && l.SameAs(t.Tool) }) {
			have.of[short] = made // it is not of a listing that was replaced meanwhile
		}
	}
	return made
}
