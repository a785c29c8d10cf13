package console

import (
	"net/http"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/follow"
)

const runsShown = 50

func (c *Console) runs(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	before := r.URL.Query().Get("before")
	page, err := c.Peers.Runs(r.Context(), who, ask.Runs{Limit: runsShown, Before: before})
	if err != nil {
		return err
	}
	f := frame{Title: "Runs", Here: "runs", Who: who, Content: page}
	if before == "" { // an older page does not change
		f.Live = "/live"
	}
	return show(w, http.StatusOK, "runs", f)
}

// runsLive sends the list anew when something happened to a run.
func (c *Console) runsLive(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	return c.live(w, r, who, ask.Events{Kind: "run.*"}, func(to *fragments) follow.Reader {
		return &whole{fragments: to, render: func() ([]byte, error) {
			page, err := c.Peers.Runs(r.Context(), who, ask.Runs{Limit: runsShown})
			if err != nil {
				return nil, err
			}
			return render("run-list", page)
		}}
	})
}

// cancel asks for a run to stop.
func (c *Console) cancel(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	run, err := id.Parse[id.Run](r.PathValue("id"))
	if err != nil {
		return missing("run")
	}
	if !who.Role.MayApprove() {
		return denied(who)
	}
	if err := form(w, r); err != nil {
		return err
	}
	if _, err := c.Peers.CancelRun(r.Context(), who, ask.CancelRun{Run: run, Reason: r.PostForm.Get("reason")}); err != nil {
		return err
	}
	http.Redirect(w, r, "/runs/"+string(run), http.StatusSeeOther)
	return nil
}
