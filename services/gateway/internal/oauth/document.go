package oauth

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
)

// Bounds of clients' metadata documents.
const (
	maxDocument  = 16 << 10
	documentLife = 5 * time.Minute
	documentWait = 5 * time.Second
	maxDocuments = 256
	maxClientURL = 512
	maxRedirects = 20
	maxRedirect  = 1024
	maxName      = 100
)

// Documents fetches clients' metadata documents (draft-ietf-oauth-client-id-metadata-document). Only a member who is logged in
// makes it fetch: nobody else can use this server to knock at others' doors.
type Documents struct {
	client *egress.Client
	now    func() time.Time

	mu    sync.Mutex
	known map[string]cached
}

type cached struct {
	doc   metadata
	until time.Time
}

// metadata is what is read of a document. The rest, such as a logo, is not looked at.
type metadata struct {
	ClientID  string   `json:"client_id"`
	Name      string   `json:"client_name"`
	Redirects []string `json:"redirect_uris"`
	Method    string   `json:"token_endpoint_auth_method"`
	Grants    []string `json:"grant_types"`
	Answers   []string `json:"response_types"`
}

// NewDocuments makes the fetcher. private are addresses that it may dial though they are not public; rule gives what tests need.
func NewDocuments(private []string, rule egress.Rule) (*Documents, error) {
	// A redirect is an error: the document is at the URL that is the client's name, or nowhere.
	rule.Hosts, rule.Methods, rule.AllowPrivate = []string{"*"}, []string{http.MethodGet}, private
	rule.MaxBytes, rule.Timeout, rule.MaxRedirects = maxDocument, documentWait, -1
	for _, at := range private { // a port of its own has to be named, beside 80 and 443
		rule.Hosts = append(rule.Hosts, portOf(at)...)
	}
	client, err := egress.New(rule)
	if err != nil {
		return nil, err
	}
	return &Documents{client: client, now: time.Now, known: map[string]cached{}}, nil
}

func portOf(at string) []string {
	if i := strings.LastIndexByte(at, ':'); i > 0 && !strings.Contains(at, "/") {
		return []string{"*:" + at[i+1:]}
	}
	return nil
}

// Close lets go of connections.
func (d *Documents) Close() { d.client.CloseIdleConnections() }

// get gives the document of a client. Problems: invalid, upstream_error, and those of egress.
func (d *Documents) get(ctx context.Context, clientID string) (metadata, error) {
	if err := checkClientURL(clientID); err != nil {
		return metadata{}, err
	}
	d.mu.Lock()
	k, ok := d.known[clientID]
	d.mu.Unlock()
	if ok && d.now().Before(k.until) {
		return k.doc, nil
	}
	doc, err := d.fetch(ctx, clientID)
	if err != nil {
		return metadata{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) >= maxDocuments { // start anew rather than keep books on use
		clear(d.known)
	}
	d.known[clientID] = cached{doc, d.now().Add(documentLife)}
	return doc, nil
}

func (d *Documents) fetch(ctx context.Context, clientID string) (metadata, error) {
	req, err := http.NewRequest(http.MethodGet, clientID, nil)
	if err != nil {
		return metadata{}, problem.New(problem.Invalid, "the client's id is not a URL")
	}
	req.Header.Set("Accept", "application/json")
	resp, _, err := d.client.Do(ctx, req)
	if err != nil {
		return metadata{}, problem.Wrap(err, problem.Upstream, "the client's metadata document could not be fetched from its URL")
	}
	defer resp.Body.Close()
	kind, _, _ := cutType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return metadata{}, problem.New(problem.Upstream, "at the client's URL is no metadata document: it answers %d, %.60q", resp.StatusCode, kind)
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return metadata{}, problem.Wrap(err, problem.Upstream, "the client's metadata document is over %d bytes, or did not arrive whole", maxDocument)
	}
	var doc metadata
	if err := json.Unmarshal(raw, &doc); err != nil {
		return metadata{}, problem.New(problem.Invalid, "the client's metadata document is no JSON of its form")
	}
	return doc, doc.check(clientID)
}

func (m metadata) check(clientID string) error {
	invalid := func(format string, args ...any) error {
		return problem.New(problem.Invalid, "the client's metadata document: "+format, args...)
	}
	switch {
	case m.ClientID != clientID:
		return invalid("its client_id is not its URL, to the letter")
	case m.Method != "" && m.Method != "none":
		return invalid("token_endpoint_auth_method %.40q; a client that has its document in public has no secret, so none", m.Method)
	case len(m.Grants) > 0 && !has(m.Grants, "authorization_code"):
		return invalid("it does not want authorization_code")
	case len(m.Answers) > 0 && !has(m.Answers, "code"):
		return invalid("it does not want response_type code")
	case checkName(m.Name) != nil:
		return invalid("%s", problem.DetailOf(checkName(m.Name)).Message)
	}
	return checkRedirects(m.Redirects, false)
}

func has(list []string, s string) bool {
	for _, have := range list {
		if have == s {
			return true
		}
	}
	return false
}

// checkClientURL checks the URL of a document before anything is sent there (section 3 of the draft).
func checkClientURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case len(raw) > maxClientURL || err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Opaque != "":
		return problem.New(problem.Invalid, "a client's id that is a URL is https, has a host, no user, and at most %d bytes", maxClientURL)
	case u.Path == "" || u.Path == "/" || path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/") || strings.ContainsAny(raw, "#?\\") || u.RawPath != "":
		return problem.New(problem.Invalid, "a client's id that is a URL has a plain path, and no query or fragment")
	}
	return nil
}

func checkName(name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.TrimSpace(name) != name || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return problem.New(problem.Invalid, "a client has a name of 1 to %d bytes that can be printed, without spaces around it", maxName)
	}
	return nil
}
