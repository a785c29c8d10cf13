package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// Bounds of fetching an API's description.
const (
	maxDocument   = 32 << 20 // bytes
	documentWait  = 2 * time.Minute
	documentHops  = 5
	documentAgent = "execwarden"
)

func isURL(document string) bool {
	return strings.HasPrefix(document, "https://") || strings.HasPrefix(document, "http://")
}

// fetchDocument gets a description from its address and keeps it as a file until done is called. It is fetched from this
// machine, with nobody's credentials; what is imported is what came, by its digest, and it is never fetched again.
func fetchDocument(ctx context.Context, address string) (path string, done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, documentWait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", nil, problem.New(problem.Invalid, "%.200q is not a URL", address)
	}
	r.Header.Set("User-Agent", documentAgent)
	if err := protected(r.URL); err != nil {
		return "", nil, err
	}
	client := &http.Client{CheckRedirect: hop}
	resp, err := client.Do(r)
	if err != nil {
		var refused *problem.Error
		if errors.As(err, &refused) {
			return "", nil, refused
		}
		return "", nil, problem.Wrap(err, problem.Upstream, "%s does not answer: %v", r.URL.Redacted(), errors.Unwrap(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", nil, problem.New(problem.Upstream, "%s answers %s", r.URL.Redacted(), resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case err != nil:
		return "", nil, problem.Wrap(err, problem.Upstream, "%s stopped in the middle", r.URL.Redacted())
	case len(text) > maxDocument:
		return "", nil, problem.New(problem.TooLarge, "the description is over %d bytes", maxDocument)
	}
	dir, err := os.MkdirTemp("", "execwarden-import-")
	if err != nil {
		return "", nil, problem.Wrap(err, problem.Internal, "there is no place for the description")
	}
	done = func() { _ = os.RemoveAll(dir) } // in the system's folder for such things; it cleans up what is left
	name := "openapi.yaml"
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		name = "openapi.json"
	}
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		done()
		return "", nil, problem.Wrap(err, problem.Internal, "the description cannot be kept")
	}
	return path, done, nil
}

// hop refuses to be led in circles, and to be led on by a site of elsewhere to what listens on this machine.
func hop(next *http.Request, via []*http.Request) error {
	switch from := via[len(via)-1].URL; {
	case len(via) >= documentHops:
		return problem.New(problem.Invalid, "the description's address leads from one to the next, over %d times", documentHops)
	case next.URL.Scheme != "https" && from.Scheme == "https":
		return problem.New(problem.Invalid, "%s leads to %s, which is not https", from.Redacted(), next.URL.Redacted())
	}
	return protected(next.URL)
}

// protected refuses to fetch what somebody on the way could change: it says what agents may call. This machine is not
// on the way.
func protected(u *url.URL) error {
	host := u.Hostname()
	if u.Scheme == "https" || u.Scheme == "http" && (host == "localhost" || host == "127.0.0.1" || host == "::1") {
		return nil
	}
	return problem.New(problem.Invalid, "a description is fetched over https; %s is not", u.Redacted())
}
