package host

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/browser"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// Bounds of browsers.
const (
	browsing      = "browser-" // starts the ids of their commands
	browserStart  = 30 * time.Second
	browserIdle   = 15 * time.Minute // without a tool
	browserWait   = 30 * time.Second // of a tool, unless it says
	maxBrowseWait = 120              // seconds
	maxDownload   = 512 << 20        // bytes of one file
	downloadsDir  = "downloads"
)

// window is an attachment's browser. One tool uses it at a time.
type window struct {
	using sync.Mutex
	mu    sync.Mutex
	is    *running // nil: none
}

// running is a browser that runs.
type running struct {
	*browser.Browser
	pipe *pipe
	used chan struct{}
	gone chan struct{} // closed when it has ended and nothing of it is left
}

// browse carries out a tool of the browser, which is begun at its first use.
func (h *Host) browse(ctx context.Context, p *place, name string, args []byte) (any, error) {
	program, err := h.cfg.Policy.MayBrowse()
	if err != nil {
		return nil, err
	}
	p.window.using.Lock()
	defer p.window.using.Unlock()
	if name == "browser_close" {
		_, err := machine.Args[struct{}](args)
		if err != nil {
			return nil, problem.New(problem.Invalid, "%v", err)
		}
		p.window.close()
		return struct{}{}, nil
	}
	var timed struct {
		Timeout int `json:"timeout_s"`
	}
	if err := json.Unmarshal(args, &timed); err != nil || timed.Timeout < 0 || timed.Timeout > maxBrowseWait {
		return nil, problem.New(problem.Invalid, "timeout_s is outside 1 to %d", maxBrowseWait)
	}
	w, err := h.window(ctx, p, program, name != "browser_open" && name != "browser_download")
	if err != nil {
		return nil, err
	}
	within := browserWait
	if timed.Timeout > 0 {
		within = time.Duration(timed.Timeout) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	defer func() {
		select {
		case w.used <- struct{}{}:
		case <-w.gone:
		}
	}()
	switch name {
	case "browser_open":
		return call(args, func(a machine.BrowserOpenArgs) (any, error) { return w.Open(ctx, a.URL) })
	case "browser_click":
		return call(args, func(a machine.BrowserClickArgs) (any, error) { return w.Click(ctx, a.Ref) })
	case "browser_type":
		return call(args, func(a machine.BrowserTypeArgs) (any, error) { return w.Type(ctx, a.Ref, a.Text, a.Submit) })
	case "browser_read":
		return call(args, func(a machine.BrowserReadArgs) (any, error) { return w.Read(ctx, a.Max) })
	case "browser_screenshot", "browser_screenshot_file":
		return call(args, func(a machine.BrowserScreenshotArgs) (any, error) {
			return screenshot(ctx, p, w, a.Path, name == "browser_screenshot_file")
		})
	case "browser_download":
		return call(args, func(a machine.BrowserDownloadArgs) (any, error) { return h.download(ctx, p, w, a) })
	}
	return nil, problem.New(problem.NotFound, "this machine has no tool %.60q", name)
}

func screenshot(ctx context.Context, p *place, w *running, path string, file bool) (any, error) {
	if (path != "") != file {
		return nil, problem.New(problem.Invalid, "path is where browser_screenshot_file writes to, and nothing for browser_screenshot")
	}
	most := browser.MaxShot
	if file {
		most = 8 << 20
	}
	shot, err := w.Screenshot(ctx, most)
	if err != nil {
		return nil, err
	}
	out := machine.Screenshot{Width: shot.Width, Height: shot.Height}
	if !file {
		out.PNG = shot.PNG
		return out, nil
	}
	out.Path = path
	return out, p.files.WriteWhole(path, shot.PNG)
}

// download has a page give a file. The browser writes it as commands would, where they may.
func (h *Host) download(ctx context.Context, p *place, w *running, a machine.BrowserDownloadArgs) (any, error) {
	if err := h.mayGrow(ctx, p); err != nil {
		return nil, err
	}
	there := int64(0)
	if h.cfg.Policy.Limited() {
		there = h.measure(ctx, p)
	}
	if err := h.makeDownloads(p); err != nil {
		return nil, err
	}
	defer h.forget(p)
	d, err := w.Download(ctx, filepath.Join(p.volume, downloadsDir), a.Ref, a.URL, func(bytes int64) error {
		if err := h.cfg.Policy.MayHold(there + bytes); err != nil {
			return err
		}
		if bytes > maxDownload {
			return problem.New(problem.TooLarge, "the file has over %d bytes, which is the most", maxDownload)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if rel, err := filepath.Rel(p.volume, d.Path); err == nil && filepath.IsLocal(rel) {
		d.Path = rel
	}
	return d, nil
}

func (h *Host) makeDownloads(p *place) error {
	root, err := os.OpenRoot(p.volume)
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "the volume cannot be opened")
	}
	defer root.Close()
	err = root.Mkdir(downloadsDir, 0o755)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if uid, gid := h.cfg.Policy.Commands(); err == nil && uid != 0 {
		err = root.Lchown(downloadsDir, uid, gid)
	}
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "%s cannot be made", downloadsDir)
	}
	return nil
}

// window gives the browser, which is begun where none runs. only is for what needs a page that is open.
func (h *Host) window(ctx context.Context, p *place, program string, only bool) (*running, error) {
	p.window.mu.Lock()
	w := p.window.is
	p.window.mu.Unlock()
	if w != nil {
		select {
		case <-w.Dead():
			<-w.gone
		default:
			return w, nil
		}
	}
	if only {
		return nil, problem.New(problem.Invalid, "no page is open, or the browser was closed; browser_open opens one")
	}
	return h.beginBrowser(ctx, p, program)
}

func (h *Host) beginBrowser(ctx context.Context, p *place, program string) (*running, error) {
	if err := h.mayGrow(ctx, p); err != nil {
		return nil, err
	}
	name := browsing + strings.TrimPrefix(string(id.New[id.Call]()), "call_")
	profile := filepath.Join(".tmp", name)
	argv := append([]string{program, "--user-data-dir=" + filepath.Join(p.volume, profile)}, browser.Flags...)
	spec, err := h.spec(p, connector.Order{Call: id.Call(name)}, machine.ExecArgs{Argv: argv, Background: true})
	if err != nil {
		return nil, err
	}
	spec.Digest, spec.Control, spec.KeepIn, spec.Timeout = name, true, true, 0
	leave, err := h.pass(p.lease.Volume)
	if err != nil {
		return nil, err
	}
	e, err := p.shim.Begin(ctx, spec)
	leave()
	if err != nil {
		return nil, err
	}
	if e.Reason != "" {
		return nil, problem.New(problem.Unavailable, "the browser %s could not be started: %s", program, e.Message)
	}
	life, end := context.WithCancel(h.life)
	pipe := &pipe{ctx: life, end: end, shim: p.shim, name: name}
	// Whatever comes of it, it is ended with this life, with its profile: nobody could speak to it in the next.
	w := &running{pipe: pipe, used: make(chan struct{}), gone: make(chan struct{})}
	clean := func() {
		end()
		stop, cancel := context.WithTimeout(context.WithoutCancel(life), 10*time.Second)
		defer cancel()
		_, _ = p.shim.Stop(stop, name, shim.Exited, time.Second) // else the next life does
		if w.Browser != nil {
			w.Close()
		}
		removeProfile(p, profile)
		close(w.gone)
	}
	start, cancel := context.WithTimeout(ctx, browserStart)
	defer cancel()
	if w.Browser, err = browser.Start(start, pipe, pipe); err != nil {
		clean()
		return nil, problem.Wrap(err, problem.Unavailable, "the browser %s does not answer: %s", program, problem.DetailOf(err).Message)
	}
	p.window.mu.Lock()
	p.window.is = w
	p.window.mu.Unlock()
	h.working.Go(func() {
		defer clean()
		idle := time.NewTimer(browserIdle)
		defer idle.Stop()
		for {
			select {
			case <-w.used:
				idle.Reset(browserIdle)
			case <-idle.C:
				return
			case <-life.Done():
				return
			case <-w.Dead():
				return
			}
		}
	})
	return w, nil
}

// close ends the browser, and returns when nothing of it is left.
func (w *window) close() {
	w.mu.Lock()
	is := w.is
	w.is = nil
	w.mu.Unlock()
	if is != nil {
		is.pipe.end()
		<-is.gone
	}
}

func removeProfile(p *place, profile string) {
	root, err := os.OpenRoot(p.volume)
	if err != nil {
		return
	}
	defer root.Close()
	_ = root.RemoveAll(profile) // it is the volume's then, and counts there
}

// endBrowsers ends those of an earlier life, to which nobody can speak any more.
func (h *Host) endBrowsers(ctx context.Context, p *place) {
	list, err := p.shim.List(ctx)
	if err != nil {
		return
	}
	for _, e := range list {
		if e.Running() && strings.HasPrefix(e.ID, browsing) {
			_, _ = p.shim.Stop(ctx, e.ID, shim.Exited, time.Second) // it ends with its attachment
			removeProfile(p, filepath.Join(".tmp", e.ID))
		}
	}
}

// pipe is a browser's two pipes, as its shim keeps them. What it says goes by the spool, which keeps enough for a reader that is
// there; one that fell behind would miss something, and ends it.
type pipe struct {
	ctx  context.Context // of the browser's life
	end  context.CancelFunc
	shim *shim.Client
	name string

	fed  int64
	at   int64
	rest []byte
}

// feedMost is how much goes there at once, in bytes.
const feedMost = 256 << 10

// Write implements io.Writer.
func (p *pipe) Write(data []byte) (n int, err error) {
	for n < len(data) {
		part := data[n:min(len(data), n+feedMost)]
		e, err := p.shim.Feed(p.ctx, p.name, shim.Fed{From: p.fed, Data: part})
		if err != nil {
			return n, err
		}
		n, p.fed = n+int(e.Fed-p.fed), e.Fed
	}
	return n, nil
}

// Read implements io.Reader.
func (p *pipe) Read(into []byte) (int, error) {
	for len(p.rest) == 0 {
		out, err := p.shim.Read(p.ctx, p.name, p.at, feedMost, waitsFor)
		if err != nil {
			return 0, err
		}
		for _, piece := range out.Pieces {
			switch piece.Stream {
			case browserSays:
				p.rest = append(p.rest, piece.Data...)
			case browserGap:
				return 0, problem.New(problem.TooLarge, "the browser says more than is kept")
			}
		}
		if p.at = out.Next; len(p.rest) == 0 && !out.Exec.Running() && p.at >= out.Exec.Bytes {
			return 0, io.EOF
		}
	}
	n := copy(into, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Streams of a browser's spool; its errors are nobody's.
const (
	browserSays = 1
	browserGap  = 3
)
