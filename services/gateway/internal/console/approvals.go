package console

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/execwarden/execwarden/libs/argdiff"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/follow"
)

type approvalsPage struct {
	Waiting []shown
	Closed  []ask.Approval
	Older   string
}

// shown is an approval with its arguments made readable.
type shown struct {
	ask.Approval
	May     bool // the member may decide
	MayRun  bool // and for the rest of the run
	Whole   bool // it has the page to itself
	Repo    string
	Args    []argument
	Raw     string
	Input   string           // what is answered with them to what the server asked
	Changes []argdiff.Change // what the edits came to
}

func showing(a ask.Approval, who auth.Identity) shown {
	args := arguments(a.Body.Args)
	out := shown{Approval: a, May: who.Role.MayApprove() && a.State == "waiting", Repo: repository(args), Args: args, Raw: pretty(a.Body.Args)}
	if len(a.Body.Input) > 0 {
		out.Input = pretty(a.Body.Input)
	}
	out.MayRun = out.May && who.Role.MayConfigure()
	if len(a.Asked) > 0 {
		out.Changes = argdiff.Changes(a.Asked, a.Body.Args)
	}
	return out
}

func (c *Console) approvals(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	before := r.URL.Query().Get("before")
	content, err := c.listApprovals(r, who, before)
	if err != nil {
		return err
	}
	f := frame{Title: "Approvals", Here: "approvals", Who: who, Content: content}
	if before == "" {
		f.Live = "/approvals/live"
	}
	return show(w, http.StatusOK, "approvals", f)
}

func (c *Console) listApprovals(r *http.Request, who auth.Identity, before string) (approvalsPage, error) {
	list, err := c.Peers.Approvals(r.Context(), who, ask.ListApprovals{Before: before})
	if err != nil {
		return approvalsPage{}, err
	}
	out := approvalsPage{Older: list.Next}
	for _, a := range list.Approvals {
		if a.State != "waiting" {
			out.Closed = append(out.Closed, a)
			continue
		}
		out.Waiting = append(out.Waiting, showing(a, who))
	}
	// The page changes while it is looked at: what is new comes below, where it moves no button under somebody's hand.
	slices.Reverse(out.Waiting)
	return out, nil
}

func (c *Console) approvalsLive(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	return c.live(w, r, who, ask.Events{Kind: "approval.*"}, func(to *fragments) follow.Reader {
		return &whole{fragments: to, render: func() ([]byte, error) {
			content, err := c.listApprovals(r, who, "")
			if err != nil {
				return nil, err
			}
			return render("approval-list", content)
		}}
	})
}

// approval shows one approval, with a form for its arguments. The page does not change by itself: somebody may be
// writing in it. What it sends has the digest of what it showed.
func (c *Console) approval(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	which, err := id.Parse[id.Approval](r.PathValue("id"))
	if err != nil {
		return missing("approval")
	}
	a, err := c.Peers.Approval(r.Context(), who, which)
	if err != nil {
		return err
	}
	content := showing(a, who)
	content.Whole = true
	return show(w, http.StatusOK, "approval", frame{Title: "Approval", Here: "approvals", Who: who, Content: content})
}

// edit hands on edited arguments, and comes back to the page, which then shows what changed.
func (c *Console) edit(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	which, err := id.Parse[id.Approval](r.PathValue("id"))
	if err != nil {
		return missing("approval")
	}
	if !who.Role.MayApprove() {
		return denied(who)
	}
	if err := formOf(w, r, maxEdit); err != nil {
		return err
	}
	args := []byte(r.PostForm.Get("args"))
	if !json.Valid(args) {
		return problem.New(problem.Invalid, "the arguments are not valid JSON; go back and correct them, nothing was changed")
	}
	_, err = c.Peers.EditApproval(r.Context(), who, ask.EditApproval{Approval: which, Digest: r.PostForm.Get("digest"), Args: args, Note: r.PostForm.Get("note")})
	if err != nil {
		return err
	}
	http.Redirect(w, r, "/approvals/"+string(which), http.StatusSeeOther)
	return nil
}

// decide hands on a decision, with the digest of what the page showed.
func (c *Console) decide(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	approval, err := id.Parse[id.Approval](r.PathValue("id"))
	if err != nil {
		return missing("approval")
	}
	if !who.Role.MayApprove() {
		return denied(who)
	}
	if err := form(w, r); err != nil {
		return err
	}
	decision := r.PostForm.Get("decision")
	if decision != "approve" && decision != "approve_for_run" && decision != "deny" {
		return problem.New(problem.Invalid, "a decision is approve, approve_for_run or deny")
	}
	_, err = c.Peers.Decide(r.Context(), who, ask.DecideApproval{
		Approval: approval, Digest: r.PostForm.Get("digest"), Approve: decision != "deny", ForRun: decision == "approve_for_run", Note: r.PostForm.Get("note"),
	})
	if err != nil {
		return err
	}
	http.Redirect(w, r, "/approvals", http.StatusSeeOther)
	return nil
}
