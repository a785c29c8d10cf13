package toolbroker

import (
	"context"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/declare"
	"github.com/execwarden/execwarden/services/toolbroker/internal/folded"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

// What a script is told at most: tools of one search, and bytes of one tool's declaration, description and schema.
const (
	maxFound       = 20
	maxQuery       = 1 << 10
	maxDeclared    = 16 << 10
	maxDescription = 8 << 10
	maxSchema      = 256 << 10
)

// scriptsMayCall lists the tools that an agent's scripts may call in a run: no script starts scripts, and none needs tools
// that stand for others.
func (s *Service) scriptsMayCall(tenant id.Tenant, a id.Agent, run id.Run) []policy.Tool {
	return slices.DeleteFunc(s.mayCall(tenant, a, run), func(t policy.Tool) bool {
		return t.Folded || t.Route == call.Script || !declare.Callable(t.Full)
	})
}

// told lists the tools that whoever asks may call: a script, or a client, which is told of what it is listed otherwise.
func (s *Service) told(ctx context.Context, tenant id.Tenant, a id.Agent, run id.Run, client bool) ([]policy.Tool, error) {
	if !client {
		return s.scriptsMayCall(tenant, a, run), nil
	}
	_, attached, err := s.attached(ctx, tenant, a, run)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(s.mayCall(tenant, a, run), func(t policy.Tool) bool { return t.Folded || t.Route == call.Exec && !attached }), nil
}

// searchTools finds tools as those of a folded connection are found, over all connections at once.
func (s *Service) searchTools(ctx context.Context, who rpc.Caller, q ask.SearchTools) (ask.FoundTools, error) {
	if err := s.view.Current(); err != nil {
		return ask.FoundTools{}, err
	}
	if q.Query == "" || len(q.Query) > maxQuery {
		return ask.FoundTools{}, problem.New(problem.Invalid, "a query has 1 to %d bytes", maxQuery)
	}
	var tools []connection.Tool
	may, err := s.told(ctx, who.Tenant, q.Agent, q.Run, q.Client)
	if err != nil {
		return ask.FoundTools{}, err
	}
	for _, t := range may {
		one := t.Tool
		one.Name = t.Full
		tools = append(tools, one)
	}
	out := ask.FoundTools{Tools: []ask.FoundTool{}}
	if q.Limit <= 0 || q.Limit > maxFound {
		q.Limit = maxFound
	}
	for _, hit := range folded.NewIndex(tools).Search(q.Query, q.Limit, func(string) bool { return true }) {
		out.Tools = append(out.Tools, ask.FoundTool{Name: hit.Tool, Description: hit.Description, Writes: hit.Writes})
	}
	return out, nil
}

// describeTool tells all of one tool. What an agent may not call is not there.
func (s *Service) describeTool(ctx context.Context, who rpc.Caller, q ask.DescribeTool) (ask.DescribedTool, error) {
	if err := s.view.Current(); err != nil {
		return ask.DescribedTool{}, err
	}
	may, err := s.told(ctx, who.Tenant, q.Agent, q.Run, q.Client)
	if err != nil {
		return ask.DescribedTool{}, err
	}
	i := slices.IndexFunc(may, func(t policy.Tool) bool { return t.Full == q.Name })
	if i < 0 {
		return ask.DescribedTool{}, problem.New(problem.NotFound, "there is no tool %.80q that may be called from here; a search finds them", q.Name)
	}
	t := may[i]
	out := ask.DescribedTool{
		Name: t.Full, Description: t.Description, Writes: t.Writes, Schema: t.Schema,
	}
	if !q.Client {
		out.Types = declare.Write([]*declare.Tool{s.declaration(who.Tenant, t)}, maxDeclared).Text
	}
	if len(out.Description) > maxDescription {
		out.Description = strings.ToValidUTF8(out.Description[:maxDescription], "") + "…"
	}
	if len(out.Schema) > maxSchema {
		out.Schema = nil
	}
	return out, nil
}
