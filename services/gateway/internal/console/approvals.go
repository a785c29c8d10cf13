package console

import (
	"net/http"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/follow"
)

type approvalsPage struct {
	May     bool // the member may decide
	Waiting []waiting
	Closed  []ask.Approval
}

// waiting is an approval that somebody has to decide, with its arguments made readable.
type waiting struct {
	ask.Approval
	Repo string
	Args []argument
	Raw  string
}

func (c *Console) approvals(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	content, err := c.listApprovals(r, who)
	if err != nil {
		return err
	}
	return show(w, http.StatusOK, "approvals", frame{Title: "Approvals", Here: "approvals", Who: who, Content: content, Live: "/approvals/live"})
}

func (c *Console) listApprovals(r *http.Request, who auth.Identity) (approvalsPage, error) {
	list, err := c.Peers.Approvals(r.Context(), who, ask.ListApprovals{})
	if err != nil {
		return approvalsPage{}, err
	}
	out := approvalsPage{May: who.Role.MayApprove()}
	for _, a := range list.Approvals {
		if a.State != "waiting" {
			out.Closed = append(out.Closed, a)
			continue
		}
		args := arguments(a.Body.Args)
		out.Waiting = append(out.Waiting, waiting{Approval: a, Repo: repository(args), Args: args, Raw: pretty(a.Body.Args)})
	}
	return out, nil
}

func (c *Console) approvalsLive(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	return c.live(w, r, who, ask.Events{Kind: "approval.*"}, func(to *fragments) follow.Reader {
		return &whole{fragments: to, render: func() ([]byte, error) {
			content, err := c.listApprovals(r, who)
			if err != nil {
				return nil, err
			}
			return render("approval-list", content)
		}}
	})
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
	if decision != "approve" && decision != "deny" {
		return problem.New(problem.Invalid, "a decision is approve or deny")
	}
	_, err = c.Peers.Decide(r.Context(), who, ask.DecideApproval{
		Approval: approval, Digest: r.PostForm.Get("digest"), Approve: decision == "approve", Note: r.PostForm.Get("note"),
	})
	if err != nil {
		return err
	}
	http.Redirect(w, r, "/approvals", http.StatusSeeOther)
	return nil
}
