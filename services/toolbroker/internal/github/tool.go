package github

import (
	"context"
	"slices"

	"github.com/execwarden/execwarden/schemas/connection"
)

// risk says what a wrong call costs. It is for people who write grants; nothing here decides by it.
type risk string

const (
	reads       risk = "reads"
	exposes     risk = "reads sensitive things"
	adds        risk = "adds"
	changes     risk = "changes"
	destructive risk = "destructive"
)

// permissions are what an App's token is made for, and no more.
type permissions map[string]string

// tool is one GitHub tool: what a model is told, what its requests may be, and how it is called and looked up.
type tool struct {
	name, about string
	effect      connection.Effect
	risk        risk

	required, optional []param

	routes []string
	needs  permissions
	by     map[string]permissions // by method, where that differs

	call func(context.Context, session, arguments) (any, error)
	// probe looks for the effect of an earlier attempt. It is there if, and only if, the effect is probeable.
	probe func(context.Context, session, arguments) (any, bool, error)
}

// tools are all of them, toolset by toolset.
var tools = slices.Concat(contextTools, contentTools, historyTools, searchTools, issueTools, pullTools, reviewTools, actionTools, securityTools, writeTools)

// scope is what a call of the tool may do.
func (t tool) scope(a arguments) *scope {
	s := &scope{needs: t.needs}
	if needs, ok := t.by[a.Method]; ok {
		s.needs = needs
	}
	if a.Owner != "" {
		s.repo = a.repository()
	}
	for _, r := range t.routes {
		s.routes = append(s.routes, readRoute(r))
	}
	return s
}

// inRepo are the arguments that every tool about a repository starts with; grants are compared with them.
func inRepo(more ...param) []param { return append([]param{owner, repo}, more...) }
