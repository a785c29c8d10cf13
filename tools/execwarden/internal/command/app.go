package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

const defaultURL = "http://127.0.0.1:8080"

// answersWithin is how long a command waits by default for what is answered at once.
const answersWithin = 30 * time.Second

// app is what all commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	now      func() time.Time
	flags    struct {
		url, tokenFile string
		output         render.Format
		timeout        time.Duration
	}
	started bool // a command's own work has begun

	noting sync.Mutex // progress is told from beside
}

func newApp(in io.Reader, out, err io.Writer, getenv func(string) string) *app {
	a := &app{in: in, out: out, err: err, getenv: getenv, now: time.Now}
	a.flags.output = render.Table
	return a
}

func (a *app) printer() *render.Printer {
	return &render.Printer{Out: a.out, Format: a.flags.output, Colour: render.Coloured(a.out, a.getenv)}
}

// aside is a printer for lines of progress on standard error.
func (a *app) aside() *render.Printer {
	return &render.Printer{Out: a.err, Format: render.Table, Colour: render.Coloured(a.err, a.getenv)}
}

// note tells something on standard error. Who reads that may be gone, which changes nothing.
func (a *app) note(format string, args ...any) {
	a.noting.Lock()
	defer a.noting.Unlock()
	_, _ = io.WriteString(a.err, strings.TrimRight(render.Visible(fmt.Sprintf(format, args...)), "\n")+"\n")
}

// url is where the API is, by the flag, the environment or default.
func (a *app) url() string { return or(a.flags.url, or(a.getenv("EXECWARDEN_URL"), defaultURL)) }

// client makes a client from the flags and the environment.
func (a *app) client() (*client.Client, error) {
	url := a.url()
	token, err := a.token()
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{URL: url, Token: token.Reveal(), UserAgent: "execwarden/" + boot.Version()})
	if err == nil && c.ExposesToken() {
		a.note("warning: the access token goes to %s unencrypted; use https", url)
	}
	return c, err
}

// within bounds a command's work by --timeout, or by what is usual for it; 0 is no limit.
func (a *app) within(ctx context.Context, usual time.Duration) (context.Context, context.CancelFunc) {
	if a.flags.timeout > 0 {
		usual = a.flags.timeout
	}
	if usual <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, usual)
}

// asking is client and within for a command that asks and answers, and tells that it works when that takes a while.
func (a *app) asking(ctx context.Context, doing string, usual time.Duration) (context.Context, *client.Client, func(), error) {
	c, err := a.client()
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := a.within(ctx, usual)
	stop := a.progress(doing)
	return ctx, c, func() { stop(); cancel() }, nil
}
