package browser

import (
	"context"

	"github.com/execwarden/execwarden/libs/problem"
)

// download is the one that is asked for.
type download struct {
	wanted   bool
	guid     string
	name     string
	path     string
	state    string
	received int64
	grow     func(int64) error // whether so many bytes may be there
	refused  error
}

// Downloaded is a file that a page gave.
type Downloaded struct {
	Page
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

// Download has a page give a file, by a click or from an address, into a directory that is there. It is called off when may says
// that it is too large. Only one is taken; what else a page wants to be downloaded is refused.
func (b *Browser) Download(ctx context.Context, dir string, ref int, address string, may func(int64) error) (Downloaded, error) {
	if (ref != 0) == (address != "") {
		return Downloaded{}, problem.New(problem.Invalid, "give ref or url, and not both")
	}
	if address != "" {
		if err := CheckURL(address); err != nil {
			return Downloaded{}, err
		}
	}
	b.mu.Lock()
	b.load = download{wanted: true, grow: may}
	b.mu.Unlock()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
		defer cancel()
		_ = b.ask(ctx, "", "Browser.setDownloadBehavior", map[string]any{"behavior": "deny", "eventsEnabled": true}, nil) // no more is wanted, which holds too
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.load.guid != "" && b.load.state != "completed" && b.load.refused == nil {
			b.chore("", "Browser.cancelDownload", map[string]any{"guid": b.load.guid})
		}
		b.load = download{}
	}()
	if err := b.ask(ctx, "", "Browser.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": dir, "eventsEnabled": true}, nil); err != nil {
		return Downloaded{}, err
	}
	if ref != 0 {
		if err := b.click(ctx, ref); err != nil {
			return Downloaded{}, err
		}
	} else {
		t, err := b.current()
		if problem.CodeOf(err) == problem.Invalid {
			if err = b.newTab(ctx); err == nil {
				t, err = b.current()
			}
		}
		if err != nil {
			return Downloaded{}, err
		}
		// The answer says that nothing was navigated to; what counts is what begins to be downloaded.
		if err := b.ask(ctx, t.session, "Page.navigate", map[string]any{"url": address}, nil); err != nil && problem.CodeOf(err) != problem.Invalid {
			return Downloaded{}, err
		}
	}
	err := b.until(ctx, func() bool { return b.load.refused != nil || b.load.state == "completed" || b.load.state == "canceled" })
	b.mu.Lock()
	d := b.load
	b.mu.Unlock()
	switch {
	case d.refused != nil:
		return Downloaded{}, d.refused
	case err != nil && d.guid == "":
		return Downloaded{}, problem.Wrap(err, problem.Timeout, "nothing was downloaded")
	case err != nil:
		return Downloaded{}, err
	case d.state != "completed":
		return Downloaded{}, problem.New(problem.Upstream, "the download was broken off")
	}
	page, err := b.page(ctx, false)
	return Downloaded{Page: page, Path: d.path, Bytes: d.received}, err
}

// willDownload takes the first file that begins while one is wanted. It is called with the lock held.
func (b *Browser) willDownload(guid, name string) {
	if !b.load.wanted || b.load.guid != "" {
		b.chore("", "Browser.cancelDownload", map[string]any{"guid": guid})
		return
	}
	b.load.guid, b.load.name = guid, name
}

// downloads follows it. It is called with the lock held.
func (b *Browser) downloads(guid, state, path string, received int64) {
	d := &b.load
	if guid != d.guid || guid == "" || d.refused != nil {
		return
	}
	d.received = received
	if d.state = state; path != "" {
		d.path = path
	}
	if err := d.grow(received); err != nil && state == "inProgress" {
		d.refused = err
		b.chore("", "Browser.cancelDownload", map[string]any{"guid": guid})
	}
}
