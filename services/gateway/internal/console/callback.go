package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
)

// callbackPage asks whoever came back from an authorization server whether the login is theirs.
type callbackPage struct {
	ask.WaitingLogin
	Name   string
	Answer ask.FinishLogin
}

// callback is where a provider's authorization server sends a browser back to, with a code. The state alone lets in: it
// is a secret of 256 bits that works once, for ten minutes, and that only the member who began the login was given. A
// session is not asked for. Its cookie does not come along from another site, and who began the login at a command line
// may have none in this browser.
//
// A state does not say whose browser this is. Somebody could begin a login and have another person finish it, with
// that one's account; so this page says who began what, and a person presses the button. Nothing is used up before: a
// program that follows links changes nothing.
func (c *Console) callback(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	p := callbackPage{Answer: ask.FinishLogin{State: q.Get("state"), Code: q.Get("code"), Issuer: q.Get("iss"), Error: q.Get("error")}}
	tenant, err := tenantOf(p.Answer.State)
	if err != nil {
		return err
	}
	if p.WaitingLogin, err = c.Peers.LookLogin(r.Context(), tenant, ask.LookLogin{State: p.Answer.State}); err != nil {
		return err
	}
	p.Name = id.Name(p.Connection)
	w.Header().Set("Cache-Control", "no-store") // the page holds the code
	return show(w, http.StatusOK, "callback", frame{Title: "Connect " + p.Name, Content: p})
}

func (c *Console) finishLogin(w http.ResponseWriter, r *http.Request) error {
	if err := c.Site.CheckOrigin(r); err != nil {
		return err
	}
	if err := form(w, r); err != nil {
		return err
	}
	f := func(name string) string { return r.PostForm.Get(name) }
	q := ask.FinishLogin{State: f("state"), Code: f("code"), Issuer: f("iss"), Error: f("error")}
	tenant, err := tenantOf(q.State)
	if err != nil {
		return err
	}
	done, err := c.Peers.FinishLogin(r.Context(), tenant, q)
	if err != nil {
		return err
	}
	return show(w, http.StatusOK, "connected", frame{Title: "Connected", Content: id.Name(done.Connection)})
}

// tenantOf is the tenant that a state says it is of. The broker knows whether that is so.
func tenantOf(state string) (id.Tenant, error) {
	text, _, _ := strings.Cut(state, ".")
	tenant, err := id.Parse[id.Tenant](text)
	if err != nil || len(state) > 400 {
		return "", problem.New(problem.Invalid, "this is not where a login comes back to: its state is missing")
	}
	return tenant, nil
}

// host is the part of a URL that a person recognizes a site by.
func host(raw string) string {
	if u, err := url.Parse(raw); err == nil && u.Host != "" {
		return u.Host
	}
	return raw
}
