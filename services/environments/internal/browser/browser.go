package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// Bounds of pages.
const (
	maxURL     = 4 << 10 // bytes that may be asked for
	shownURL   = 2000
	shownTitle = 300
	maxChores  = 512 // events that wait to be answered; a page that makes more is ended with its browser
	lookWithin = 3 * time.Second
	settle     = 200 * time.Millisecond
)

// Flags are of every browser, besides its profile. The cage is its sandbox: Chromium's own needs namespaces, which are refused there.
var Flags = []string{
	"--headless", "--no-sandbox", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu", "--disable-extensions",
	"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-breakpad", "--disable-crash-reporter",
	"--disable-features=Translate,MediaRouter,OptimizationHints", "--mute-audio", "--password-store=basic", "--window-size=1280,800", "about:blank",
}

//go:embed page.js
var script string

// Browser is one that runs.
type Browser struct {
	*talk
	fault   error // why it ended; read once over is closed
	chores  chan func(context.Context)
	working sync.WaitGroup
	stop    context.CancelFunc
	dead    <-chan struct{}

	mu       sync.Mutex
	tab      tab
	making   bool // a tab of ours
	happened happened
	load     download
	changed  chan struct{} // closed and replaced when any of these changes
}

// tab is the page that is looked at.
type tab struct {
	target, session, frame string
	loading, crashed       bool
}

// happened is what a page did that is told with the next answer.
type happened struct {
	dialogs []string
	popups  []string
	count   int // of both, told or not
}

// Page says where one is after each tool.
type Page struct {
	URL     string   `json:"url"`
	Title   string   `json:"title"`
	Loading bool     `json:"loading,omitempty"` // it was not done in time
	Dialogs []string `json:"dialogs,omitempty"` // that were dismissed
	Popups  []string `json:"popups,omitempty"`  // windows that were closed; open one by its address
	More    int      `json:"more,omitempty"`    // dialogs and popups that are not listed
}

// Start speaks to a browser that was begun with Flags, until end or its own end.
func Start(ctx context.Context, to io.Writer, from io.Reader) (*Browser, error) {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	b := &Browser{talk: newTalk(to), making: true, chores: make(chan func(context.Context), maxChores), stop: stop, dead: life.Done(), changed: make(chan struct{})}
	b.working.Go(func() { b.fault = b.hear(from, b.on); stop() })
	b.working.Go(func() { b.work(life) })
	for _, q := range []struct {
		method string
		params any
	}{
		{"Target.setDiscoverTargets", map[string]any{"discover": true}},
		{"Browser.setDownloadBehavior", map[string]any{"behavior": "deny", "eventsEnabled": true}},
	} {
		if err := b.ask(ctx, "", q.method, q.params, nil); err != nil {
			stop()
			return nil, err
		}
	}
	b.mu.Lock()
	b.making = false
	b.mu.Unlock()
	return b, nil
}

// Close lets go of a browser; whoever began it ends it, and closes what Start was given, before.
func (b *Browser) Close() {
	b.stop()
	b.working.Wait()
}

// Dead is closed when it has ended, or nobody can speak to it any more: then it is to be ended.
func (b *Browser) Dead() <-chan struct{} { return b.dead }

// work answers events that have to be.
func (b *Browser) work(ctx context.Context) {
	for {
		select {
		case do := <-b.chores:
			do(ctx)
		case <-b.over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// chore has something asked without waiting for the answer to it here.
func (b *Browser) chore(session, method string, params any) {
	do := func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, lookWithin)
		defer cancel()
		_ = b.ask(ctx, session, method, params, nil) // what is gone needs none
	}
	select {
	case b.chores <- do:
	default:
		b.stop() // nobody answers it any more: its tools say so, and it is ended
	}
}

func (b *Browser) on(session, method string, raw json.RawMessage) {
	var p struct {
		TargetInfo struct {
			TargetID string `json:"targetId"`
			Type     string `json:"type"`
			Opener   string `json:"openerId"` // not of what a page opened that is not to know it
		} `json:"targetInfo"`
		URL               string  `json:"url"`
		FrameID           string  `json:"frameId"`
		Type              string  `json:"type"`
		Message           string  `json:"message"`
		GUID              string  `json:"guid"`
		SuggestedFilename string  `json:"suggestedFilename"`
		State             string  `json:"state"`
		FilePath          string  `json:"filePath"`
		ReceivedBytes     float64 `json:"receivedBytes"`
	}
	if json.Unmarshal(raw, &p) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	mine := session != "" && session == b.tab.session
	switch method {
	case "Target.targetCreated":
		if t := p.TargetInfo; t.Type == "page" && (t.Opener != "" || !b.making) {
			b.chore("", "Target.closeTarget", map[string]any{"targetId": t.TargetID})
		}
	case "Page.windowOpen":
		if mine {
			b.happened.popups = b.note(b.happened.popups, p.URL)
		}
	case "Page.javascriptDialogOpening":
		if mine {
			b.happened.dialogs = b.note(b.happened.dialogs, p.Type+": "+p.Message)
		}
		b.chore(session, "Page.handleJavaScriptDialog", map[string]any{"accept": p.Type == "alert" || p.Type == "beforeunload"})
	case "Page.frameStartedLoading":
		b.tab.loading = b.tab.loading || mine && p.FrameID == b.tab.frame
	case "Page.frameStoppedLoading":
		b.tab.loading = b.tab.loading && !(mine && p.FrameID == b.tab.frame)
	case "Inspector.targetCrashed":
		b.tab.crashed = b.tab.crashed || mine
	case "Browser.downloadWillBegin":
		b.willDownload(p.GUID, p.SuggestedFilename)
	case "Browser.downloadProgress":
		b.downloads(p.GUID, p.State, p.FilePath, int64(p.ReceivedBytes))
	default:
		return
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// note adds to what is told, as far as that has room.
func (b *Browser) note(list []string, text string) []string {
	b.happened.count++
	if len(list) >= 5 {
		return list
	}
	return append(list, clip(text, shownTitle))
}

// until waits until ok says so, of what is locked then.
func (b *Browser) until(ctx context.Context, ok func() bool) error {
	for {
		b.mu.Lock()
		done, changed := ok(), b.changed
		b.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-b.over:
			return problem.New(problem.Unavailable, "the browser has ended")
		case <-ctx.Done():
			return problem.Wrap(ctx.Err(), problem.Timeout, "the page was not done in time")
		}
	}
}

// CheckURL says whether a page may be opened by its address: pages of the web alone.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxURL || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return problem.New(problem.Invalid, "url %.200q is no address with http or https", text)
	}
	return nil
}

// Open opens a page in a new tab, in place of the one before. One that is not done when ctx ends is stopped, and may be read as
// far as it is there.
func (b *Browser) Open(ctx context.Context, address string) (Page, error) {
	if err := CheckURL(address); err != nil {
		return Page{}, err
	}
	if err := b.newTab(ctx); err != nil {
		return Page{}, err
	}
	b.mu.Lock()
	t := b.tab
	b.mu.Unlock()
	var answer struct {
		ErrorText  string `json:"errorText"`
		IsDownload bool   `json:"isDownload"`
	}
	err := b.ask(ctx, t.session, "Page.navigate", map[string]any{"url": address}, &answer)
	if err == nil && answer.ErrorText != "" {
		if answer.IsDownload {
			return Page{}, problem.New(problem.Invalid, "this is a file and no page; browser_download takes it")
		}
		return Page{}, problem.New(problem.Upstream, "the page cannot be opened: %.200s", answer.ErrorText)
	}
	if err == nil {
		err = b.until(ctx, func() bool { return !b.tab.loading })
	}
	if err != nil && problem.CodeOf(err) != problem.Timeout {
		return Page{}, err
	}
	return b.page(ctx, err != nil)
}

func (b *Browser) newTab(ctx context.Context) error {
	b.mu.Lock()
	b.tab, b.happened, b.making = tab{}, happened{}, true
	b.mu.Unlock()
	var made struct {
		TargetID string `json:"targetId"`
	}
	err := b.ask(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	b.mu.Lock()
	b.making = false
	b.mu.Unlock()
	if err != nil {
		return err
	}
	if err := b.closeOthers(ctx, made.TargetID); err != nil {
		return err
	}
	var joined struct {
		SessionID string `json:"sessionId"`
	}
	if err := b.ask(ctx, "", "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &joined); err != nil {
		return err
	}
	b.mu.Lock()
	b.tab = tab{target: made.TargetID, session: joined.SessionID, frame: made.TargetID} // a page's first frame has its id
	b.mu.Unlock()
	for _, method := range []string{"Page.enable", "Inspector.enable"} {
		if err := b.ask(ctx, joined.SessionID, method, struct{}{}, nil); err != nil {
			return err
		}
	}
	return nil
}

// closeOthers closes the tab before, and what it opened meanwhile.
func (b *Browser) closeOthers(ctx context.Context, but string) error {
	var all struct {
		TargetInfos []struct {
			TargetID string `json:"targetId"`
			Type     string `json:"type"`
		} `json:"targetInfos"`
	}
	if err := b.ask(ctx, "", "Target.getTargets", struct{}{}, &all); err != nil {
		return err
	}
	for _, t := range all.TargetInfos {
		if t.Type == "page" && t.TargetID != but {
			_ = b.ask(ctx, "", "Target.closeTarget", map[string]any{"targetId": t.TargetID}, nil) // it may have closed itself
		}
	}
	return nil
}

// current gives the tab, if there is one that works.
func (b *Browser) current() (tab, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.tab.session == "":
		return b.tab, problem.New(problem.Invalid, "no page is open; browser_open opens one")
	case b.tab.crashed:
		return b.tab, problem.New(problem.Invalid, "the page crashed; browser_open opens it again, or another")
	}
	return b.tab, nil
}

// page says where one is. Where that is no page of the web, it is left: nobody is shown what a machine has in it.
func (b *Browser) page(ctx context.Context, loading bool) (Page, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
	defer cancel()
	t, err := b.current()
	if err != nil {
		return Page{}, err
	}
	if loading {
		_ = b.ask(ctx, t.session, "Page.stopLoading", struct{}{}, nil) // one that hangs is told so by what follows
	}
	var info struct {
		TargetInfo struct {
			URL   string `json:"url"`
			Title string `json:"title"`
		} `json:"targetInfo"`
	}
	if err := b.ask(ctx, "", "Target.getTargetInfo", map[string]any{"targetId": t.target}, &info); err != nil {
		return Page{}, err
	}
	if u, err := url.Parse(info.TargetInfo.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "blob" && info.TargetInfo.URL != "about:blank" && info.TargetInfo.URL != "" {
		_ = b.newTab(ctx) // else the next tool says so
		return Page{}, problem.New(problem.Denied, "the page led to %.60q, which is no page of the web", info.TargetInfo.URL)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.happened
	b.happened = happened{}
	return Page{URL: clip(info.TargetInfo.URL, shownURL), Title: clip(info.TargetInfo.Title, shownTitle), Loading: loading,
		Dialogs: h.dialogs, Popups: h.popups, More: h.count - len(h.dialogs) - len(h.popups)}, nil
}

func clip(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "")
}
