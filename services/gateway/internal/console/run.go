package console

import (
	"net/http"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/follow"
)

type runPage struct {
	Run   id.Run
	May   bool // the member may stop it
	Lines []line
	Next  string
	More  bool
}

// run shows the run's first events, as many as the ledger gives at once; the stream brings the rest.
func (c *Console) run(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	run, err := id.ParseRun(r.PathValue("id"))
	if err != nil {
		return missing("run")
	}
	var from ask.Cursor
	if after := r.URL.Query().Get("after"); after != "" {
		if from, err = follow.Parse(after); err != nil {
			return err
		}
	}
	page, err := c.Peers.Timeline(r.Context(), who, ask.Timeline{Run: run, After: from.Activity})
	if err != nil {
		return err
	}
	_, hosted := id.Parse[id.Run](string(run)) // nobody but its client stops a conversation
	content := runPage{Run: run, May: who.Role.MayApprove() && hosted == nil, Next: page.Next.String(), More: page.More}
	for _, e := range page.Events {
		content.Lines = append(content.Lines, lineOf(e))
	}
	return show(w, http.StatusOK, "run", frame{
		Title: "Run " + string(run), Here: "runs", Who: who, Content: content,
		Live: "/runs/" + string(run) + "/live?after=" + content.Next,
	})
}

func (c *Console) runLive(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	run, err := id.ParseRun(r.PathValue("id"))
	if err != nil {
		return missing("run")
	}
	return c.live(w, r, who, ask.Events{Run: run}, func(to *fragments) follow.Reader { return &appended{to} })
}

func missing(what string) error { return problem.New(problem.NotFound, "there is no such %s", what) }

func denied(who auth.Identity) error {
	return problem.New(problem.Denied, "a member with role %s may not do this", who.Role)
}
