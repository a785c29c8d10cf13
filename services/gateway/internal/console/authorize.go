package console

import (
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/control"
	"github.com/execwarden/execwarden/services/gateway/internal/oauth"
)

// consentPage asks a member whether a client may act for an agent, and for which.
type consentPage struct {
	oauth.Request
	May        bool
	Role       string
	At         string // what a person recognizes the redirect by
	Local      bool   // it leads to a program on the member's own machine
	Connection string // the one that is asked for; empty: all
	Agents     []agentChoice
	Fields     map[string]string
}

type agentChoice struct {
	ID     id.Agent
	Name   string
	Grants []string
}

// refusedPage is shown for a request that is wrong, with the way back for whoever trusts the link.
type refusedPage struct {
	problem.Detail
	Back string
	At   string
}

// fields are the parameters of a request that the page sends again. Everything in them is checked again.
var fields = []string{"response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method", "resource", "response_mode", "request", "request_uri"}

// authorize is where a client sends a member's browser. A browser that comes from another site leaves the session's cookie at
// home, so whoever seems to be nobody gets a page with a link to the same place: that is followed from here.
func (c *Console) authorize(w http.ResponseWriter, r *http.Request) error {
	if len(r.URL.RawQuery) > oauth.MaxQuery {
		return problem.New(problem.TooLarge, "the request is over %d bytes", oauth.MaxQuery)
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return problem.New(problem.Invalid, "the link is not whole")
	}
	who, err := c.Gate.Identify(r)
	if problem.CodeOf(err) == problem.Unauthenticated {
		return show(w, http.StatusUnauthorized, "consent-login", frame{Title: "Log in first", Content: oauth.AuthorizePath + "?" + q.Encode()})
	}
	if err != nil {
		return err
	}
	asked, back, err := c.OAuth.Read(r.Context(), who.Tenant, q)
	if err != nil {
		return c.refused(w, asked, back, err)
	}
	p := consentPage{Request: asked, May: who.Role.MayConfigure(), Role: string(who.Role), At: place(asked.Redirect), Fields: map[string]string{}}
	p.Local = !strings.HasPrefix(asked.Redirect, "https:")
	for _, name := range fields {
		if q.Has(name) {
			p.Fields[name] = q.Get(name)
		}
	}
	if name, ok := c.OAuth.Connection(asked.Resource); ok {
		p.Connection = id.Name(name)
	}
	for _, a := range c.State.Agents(who.Tenant) {
		if a.Hosting == agent.External {
			p.Agents = append(p.Agents, agentChoice{a.Agent, id.Name(a.Agent), grantsOf(c.State.Grants(who.Tenant), a.Agent, p.Connection, time.Now())})
		}
	}
	w.Header().Set("Content-Security-Policy", strings.Replace(policy, "form-action 'self'", "form-action 'self' "+source(asked.Redirect), 1))
	return show(w, http.StatusOK, "consent", frame{Title: "Let a client act for an agent", Who: who, Content: p})
}

// consent hands on what a member said. The request is read again from the form, as if it came for the first time.
func (c *Console) consent(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	if !who.Session() {
		return problem.New(problem.Denied, "a person consents, in the console")
	}
	if err := form(w, r); err != nil {
		return err
	}
	q := url.Values{}
	for _, name := range fields {
		if values, ok := r.PostForm[name]; ok {
			q[name] = values
		}
	}
	asked, back, err := c.OAuth.Read(r.Context(), who.Tenant, q)
	if err != nil {
		return c.refused(w, asked, back, err)
	}
	switch r.PostForm.Get("decision") {
	case "allow":
		a, err := id.Parse[id.Agent](r.PostForm.Get("agent"))
		if err != nil {
			return problem.New(problem.Invalid, "choose the agent that the client is to act for; go back and try again")
		}
		if back, err = c.OAuth.Consent(r.Context(), who, asked, a); err != nil {
			return err
		}
	case "deny":
		back = c.OAuth.Refuse(asked)
	default:
		return problem.New(problem.Invalid, "a decision is allow or deny")
	}
	http.Redirect(w, r, back, http.StatusSeeOther)
	return nil
}

// refused shows what is wrong with a request. It is not sent on by itself: anybody can make a link that is wrong, to a client
// of their own, and this site would be what it seems to lead to.
func (c *Console) refused(w http.ResponseWriter, asked oauth.Request, back string, err error) error {
	if back == "" {
		return err
	}
	d := problem.DetailOf(err)
	return show(w, d.Code.Status(), "consent-refused", frame{Title: "Not possible", Content: refusedPage{d, back, place(asked.Redirect)}})
}

// place is what a person recognizes a redirect by: its host, or the scheme of a program.
func place(redirect string) string {
	u, err := url.Parse(redirect)
	switch {
	case err != nil:
		return ""
	case u.Scheme == "https":
		return u.Host
	case u.Scheme == "http":
		return "a program on this machine (" + u.Host + ")"
	}
	return "a program on this machine (" + u.Scheme + ":)"
}

// source is a redirect as a content security policy names it: a browser follows no form's redirect that is not allowed. It was
// checked when the client was: nothing in its host or scheme ends a directive.
func source(redirect string) string {
	u, err := url.Parse(redirect)
	switch {
	case err != nil:
		return ""
	case u.Scheme == "https" || u.Scheme == "http":
		return u.Scheme + "://" + u.Host
	}
	return u.Scheme + ":"
}

// grantsOf says in words what an agent may do now, at one connection or at all.
func grantsOf(all []control.Grant, of id.Agent, connection string, now time.Time) []string {
	var out []string
	for _, g := range all {
		if g.Agent != of || g.Revoked || g.Run != "" || !g.ExpiresAt.IsZero() && !now.Before(g.ExpiresAt) {
			continue
		}
		if con, _, _ := strings.Cut(g.Selector.Tool, "."); connection != "" && con != connection && !strings.Contains(con, "*") {
			continue
		}
		out = append(out, grantWords(g))
	}
	return out
}

// back is a redirect of a client as a link. A template would let no scheme of a program's own through; this was checked.
func back(redirect string) template.URL { return template.URL(redirect) }
