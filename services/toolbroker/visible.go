package toolbroker

import (
	"context"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/toolbroker/internal/folded"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

func (s *Service) visibleTools(ctx context.Context, who rpc.Caller, q ask.Visibility) (ask.VisibleTools, error) {
	if err := s.view.Current(); err != nil {
		return ask.VisibleTools{}, err
	}
	if q.As != "" && q.As != ask.Folded && q.As != ask.Names && q.As != ask.Paged {
		return ask.VisibleTools{}, problem.New(problem.Invalid, "tools are listed as %s, %s or %s", ask.Folded, ask.Names, ask.Paged)
	}
	visible := s.mayCall(who.Tenant, q.Agent, q.Run)
	v, attached, err := s.attached(ctx, who.Tenant, q.Agent, q.Run)
	if err != nil {
		return ask.VisibleTools{}, err
	}
	// A machine's tools are of no use without one, nor those that it does not have.
	m, _ := s.machines.Get(who.Tenant, string(v.Environment))
	visible = slices.DeleteFunc(visible, func(t policy.Tool) bool {
		return t.Route == call.Exec && (!attached || !machine.Has(m.Manifest, t.Name))
	})
	if q.As == ask.Paged {
		return page(visible, q.After), nil
	}
	of := map[string]int{} // by connection
	for _, t := range visible {
		of[connectionOf(t.Full)]++
	}
	out := ask.VisibleTools{Tools: []ask.VisibleTool{}}
	for _, t := range visible {
		name := connectionOf(t.Full)
		switch n := of[name]; {
		case q.As == ask.Names:
			out.Tools = append(out.Tools, ask.VisibleTool{Name: t.Full})
		case q.As != ask.Folded || n > 0 && n < folded.From:
			one := ask.VisibleTool{Name: t.Full, Description: t.Description, Schema: t.Schema}
			if q.As == ask.Folded && t.Route == call.Script {
				one.Types = s.typesForModel(who.Tenant, visible)
			}
			out.Tools = append(out.Tools, one)
		case n > 0: // the first of many, for which the three stand
			for _, f := range folded.Tools() {
				out.Tools = append(out.Tools, ask.VisibleTool{Name: name + "." + f.Name, Description: f.Description, Schema: f.Schema})
			}
			of[name] = 0
		}
	}
	return out, nil
}

// maxPage is how many bytes of tools one answer carries.
const maxPage = 512 << 10

// page gives the tools after one, as many as an answer carries, and at least one.
func page(visible []policy.Tool, after string) ask.VisibleTools {
	out, size := ask.VisibleTools{Tools: []ask.VisibleTool{}}, 0
	for _, t := range visible { // sorted by name
		if t.Full <= after {
			continue
		}
		size += len(t.Full) + len(t.Description) + len(t.Schema) + len(t.More) + 100
		if size > maxPage && len(out.Tools) > 0 {
			out.Rest = true
			break
		}
		out.Tools = append(out.Tools, ask.VisibleTool{Name: t.Full, Description: t.Description, Schema: t.Schema, More: t.More, Effect: t.Effect, Writes: t.Writes})
	}
	return out
}

// mayCall lists the tools that an agent may call with some arguments, in a run or outside of any.
func (s *Service) mayCall(tenant id.Tenant, a id.Agent, run id.Run) (out []policy.Tool) {
	known := s.state.Known(tenant, a, "")
	for _, t := range s.state.Tools(tenant) {
		known.Tool = &t
		if policy.Visible(known, run, s.now()) {
			out = append(out, t)
		}
	}
	return out
}

func connectionOf(full string) string {
	name, _, _ := strings.Cut(full, ".")
	return name
}

// tell answers a call of a tool that stands for others. It asks nothing of the provider, and what it tells is what the
// agent would be shown anyway, so it taints nothing.
func (s *Service) tell(w *executor.Work, def connection.Defined, tool string) schemas.Event {
	answer, err := s.index(w.Tenant, def.Connection).Answer(tool, w.Requested.Body.Args, func(tool string) bool {
		known := s.state.Known(w.Tenant, w.Requested.Agent, id.Name(def.Connection)+"."+tool)
		return policy.Visible(known, w.Admitted.Run, s.now())
	})
	if err != nil {
		return s.failed(w, err)
	}
	return call.Finished{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Body: call.Result{Result: answer}}
}

// indexed is the index of a connection's tools as they were listed last.
type indexed struct {
	tools []connection.Tool
	*folded.Index
}

// index gives the index of a connection's tools. It is made when it is first asked and after each listing.
func (s *Service) index(tenant id.Tenant, c id.Connection) *folded.Index {
	tools, key := s.state.Listed(tenant, c), connectionKey{tenant, c}
	s.indexing.Lock()
	defer s.indexing.Unlock()
	have, ok := s.indexes[key]
	if !ok || !sameListing(have.tools, tools) {
		have = indexed{tools, folded.NewIndex(tools)}
		s.indexes[key] = have
	}
	return have.Index
}

// sameListing says whether two are one, not only alike.
func sameListing(a, b []connection.Tool) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
