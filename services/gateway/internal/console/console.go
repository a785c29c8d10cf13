package console

import (
	"bytes"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/control"
	"github.com/execwarden/execwarden/services/gateway/internal/edge"
	"github.com/execwarden/execwarden/services/gateway/internal/follow"
	"github.com/execwarden/execwarden/services/gateway/internal/oauth"
	"github.com/execwarden/execwarden/services/gateway/internal/peers"
)

// Console serves the pages.
type Console struct {
	Gate  *auth.Gate
	Site  *edge.Site
	Peers *peers.Peers
	Hub   *follow.Hub
	State *control.State
	OAuth *oauth.Server
	Note  *slog.Logger
}

var (
	// With htmx.org 4.0.1 and its SSE extension, as their authors publish them.
	//go:embed static
	static embed.FS
	//go:embed pages/*.html
	pages embed.FS

	templates = template.Must(template.New("").Funcs(template.FuncMap{
		"visible": visible, "editable": editable, "clock": clock, "stamp": stamp, "short": short, "host": host, "back": back,
	}).ParseFS(pages, "pages/*.html"))
)

// policy lets a page load from this site only, run no script in the page, and be shown in no frame.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// The largest forms, in bytes: a note and some ids, and with a call's arguments, of which each byte may be sent as three.
const (
	maxForm = 32 << 10
	maxEdit = 1 << 20
)

// Register adds the routes.
func (c *Console) Register(mux *http.ServeMux) {
	files, _ := fs.Sub(static, "static") // a valid path
	mux.Handle("GET /static/", http.StripPrefix("/static/", safe(http.FileServerFS(files))))
	open := func(pattern string, serve func(http.ResponseWriter, *http.Request) error) {
		mux.Handle(pattern, safe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				c.fail(w, r, err)
			}
		})))
	}
	member := func(pattern string, serve func(http.ResponseWriter, *http.Request, auth.Identity) error) {
		open(pattern, func(w http.ResponseWriter, r *http.Request) error {
			who, err := c.Gate.Identify(r)
			if err == nil && edge.Changes(r) {
				err = c.Site.CheckOrigin(r)
			}
			if err != nil {
				return err
			}
			return serve(w, r, who)
		})
	}
	open("GET /login", c.showLogin)
	open("POST /login", c.login)
	open("POST /logout", c.logout)
	open("GET /oauth/callback", c.callback)
	open("POST /oauth/callback", c.finishLogin)
	open("GET "+oauth.AuthorizePath, c.authorize)
	member("POST "+oauth.AuthorizePath, c.consent)
	member("GET /{$}", c.runs)
	member("GET /live", c.runsLive)
	member("GET /runs/{id}", c.run)
	member("GET /runs/{id}/live", c.runLive)
	member("POST /runs/{id}/cancel", c.cancel)
	member("GET /approvals", c.approvals)
	member("GET /approvals/live", c.approvalsLive)
	member("GET /approvals/{id}", c.approval)
	member("POST /approvals/{id}/decide", c.decide)
	member("POST /approvals/{id}/edit", c.edit)
	open("/", func(http.ResponseWriter, *http.Request) error {
		return problem.New(problem.NotFound, "there is no such page")
	})
}

func safe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin") // with no-referrer, a browser would not say where our own forms come from
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// frame is what every page has around its content.
type frame struct {
	Title   string
	Here    string // the entry of the navigation that the page belongs to
	Who     auth.Identity
	Live    string // where live updates come from, "" for a page without
	Content any
}

// show renders a page whole before anything is sent, so that a fault in it is an error and not half a page.
func show(w http.ResponseWriter, status int, name string, f frame) error {
	html, err := render(name, f)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(html) // the browser is gone if this fails
	return nil
}

func render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the page %s cannot be shown", name)
	}
	return b.Bytes(), nil
}

// fail shows what went wrong as a page.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	d := problem.DetailOf(err)
	if d.Code == problem.Internal || d.Code == problem.BusDenied {
		c.Note.ErrorContext(r.Context(), "console", "path", r.URL.Path, "err", err)
	}
	if err := show(w, d.Code.Status(), "problem", frame{Title: "Not possible", Content: d}); err != nil {
		c.Note.ErrorContext(r.Context(), "console", "err", err)
	}
}

// form reads a posted form.
func form(w http.ResponseWriter, r *http.Request) error { return formOf(w, r, maxForm) }

func formOf(w http.ResponseWriter, r *http.Request, most int64) error {
	r.Body = http.MaxBytesReader(w, r.Body, most)
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/x-www-form-urlencoded" {
		return problem.New(problem.Invalid, "this takes a form")
	}
	var large *http.MaxBytesError
	switch err := r.ParseForm(); {
	case errors.As(err, &large):
		return problem.New(problem.TooLarge, "the form is over %d bytes", most)
	case err != nil:
		return problem.Wrap(err, problem.Invalid, "the form cannot be read")
	}
	return nil
}
