package vault

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/problem"
)

// Bounds of a transit master.
const (
	transitTimeout = 5 * time.Second
	maxTransit     = 256 << 10        // bytes of an answer
	transitMemory  = 30 * time.Second // how long an opened key is kept: a key taken away in the KMS works for as long
	maxRemembered  = 1024
)

// TransitConfig says where a transit secrets engine is: HashiCorp Vault's or OpenBao's, which speak the same HTTP API
// (encrypt, decrypt and read of a key).
type TransitConfig struct {
	URL       string // https, or http on this machine, where an agent may listen
	Mount     string // default "transit"
	Key       string // the name of the encryption key
	TokenFile string // read anew for each request: agents renew it in place
	Token     Secret // when there is no file
}

// Transit is a master in a KMS: the key never leaves it. Its versions are the KMS's own; the newest seals.
type Transit struct {
	cfg  TransitConfig
	base *url.URL
	http *http.Client
	now  func() time.Time

	mu         sync.Mutex
	latest     int // the newest version that was seen
	remembered map[[sha256.Size]byte]remembered
}

type remembered struct {
	key   []byte
	until time.Time
}

var (
	transitName       = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	transitMount      = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}(/[A-Za-z0-9_-]{1,64}){0,4}$`)
	transitCiphertext = regexp.MustCompile(`^vault:v([1-9][0-9]{0,8}):[A-Za-z0-9+/=]+$`)
)

// NewTransit makes a master of a transit engine. It asks nothing yet.
func NewTransit(cfg TransitConfig) (*Transit, error) {
	if cfg.Mount == "" {
		cfg.Mount = "transit"
	}
	base, err := url.Parse(cfg.URL)
	switch {
	case err != nil || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" || strings.Trim(base.Path, "/") != "":
		return nil, problem.New(problem.Invalid, "transit_url is not a URL such as https://openbao.example:8200, without credentials or a path")
	case base.Scheme != "https" && !(base.Scheme == "http" && loopback(base.Hostname())):
		return nil, problem.New(problem.Invalid, "transit_url is neither https nor on this machine: keys and the token would cross the network in the clear")
	case !transitMount.MatchString(cfg.Mount) || !transitName.MatchString(cfg.Key):
		return nil, problem.New(problem.Invalid, "transit_mount %.60q or transit_key %.60q is no name", cfg.Mount, cfg.Key)
	case (cfg.TokenFile == "") == cfg.Token.Empty():
		return nil, problem.New(problem.Invalid, "transit_url needs a token: transit_token_file, or EXECWARDEN_TRANSIT_TOKEN, and not both")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 4, 30*time.Second
	return &Transit{cfg: cfg, base: base, now: time.Now, remembered: map[[sha256.Size]byte]remembered{}, http: &http.Client{
		Transport: transport, Timeout: transitTimeout,
		// A redirect would take the token and keys elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Wrap implements Master.
func (t *Transit) Wrap(ctx context.Context, key []byte) ([]byte, error) {
	var a struct{ Ciphertext string }
	if err := t.ask(ctx, http.MethodPost, "encrypt", map[string][]byte{"plaintext": key}, &a); err != nil {
		return nil, err
	}
	version := versionOf([]byte(a.Ciphertext))
	if version == 0 {
		return nil, problem.New(problem.Internal, "the KMS answered with what is no ciphertext of it")
	}
	t.saw(version)
	return []byte(a.Ciphertext), nil
}

// Unwrap implements Master. That there is a newer version is known once Current or Wrap was told of it.
func (t *Transit) Unwrap(ctx context.Context, wrapped []byte) ([]byte, bool, error) {
	version := versionOf(wrapped)
	if version == 0 {
		return nil, false, unknownKey() // of a master of another kind
	}
	sum := sha256.Sum256(wrapped)
	if key, ok := t.recall(sum); ok {
		return key, t.isLatest(version), nil
	}
	var a struct{ Plaintext []byte } // base64 in JSON
	if err := t.ask(ctx, http.MethodPost, "decrypt", map[string]string{"ciphertext": string(wrapped)}, &a); err != nil {
		return nil, false, err
	}
	if len(a.Plaintext) == 0 {
		return nil, false, problem.New(problem.Internal, "the KMS answered with no plaintext")
	}
	t.remember(sum, a.Plaintext)
	return a.Plaintext, t.isLatest(version), nil
}

// Current implements Master.
func (t *Transit) Current(ctx context.Context) (string, error) {
	var a struct {
		Latest int `json:"latest_version"`
	}
	if err := t.ask(ctx, http.MethodGet, "keys", nil, &a); err != nil {
		return "", err
	}
	if a.Latest < 1 {
		return "", problem.New(problem.Internal, "the KMS names no version of its key %s", t.cfg.Key)
	}
	t.saw(a.Latest)
	return fmt.Sprintf("transit:%s/%s:v%d", t.cfg.Mount, t.cfg.Key, a.Latest), nil
}

// versionOf is the version of the key that sealed something, 0 when that was no transit engine.
func versionOf(wrapped []byte) int {
	m := transitCiphertext.FindSubmatch(wrapped)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1])) // at most nine digits
	return n
}

func (t *Transit) saw(version int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latest = max(t.latest, version)
}

func (t *Transit) isLatest(version int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return version >= t.latest
}

func (t *Transit) recall(sum [sha256.Size]byte) ([]byte, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.remembered[sum]
	return bytes.Clone(r.key), ok && t.now().Before(r.until)
}

func (t *Transit) remember(sum [sha256.Size]byte, key []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.remembered) >= maxRemembered {
		clear(t.remembered)
	}
	t.remembered[sum] = remembered{bytes.Clone(key), t.now().Add(transitMemory)}
}

// ask sends one request to the engine and reads the data of its answer. What it says of a failure goes to the cause.
func (t *Transit) ask(ctx context.Context, method, operation string, body, data any) error {
	token := t.cfg.Token
	if t.cfg.TokenFile != "" {
		text, err := keyfile.Read(t.cfg.TokenFile)
		if err != nil {
			return err
		}
		token = NewSecret(text)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return problem.Wrap(err, problem.Internal, "the question to the KMS cannot be written")
	}
	if body == nil {
		raw = nil
	}
	at := t.base.JoinPath("v1", t.cfg.Mount, operation, t.cfg.Key)
	r, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(raw))
	if err != nil {
		return problem.Wrap(err, problem.Internal, "the question to the KMS cannot be written")
	}
	r.Header.Set("X-Vault-Token", token.Reveal())
	r.Header.Set("X-Vault-Request", "true") // agents refuse requests without it, which a browser could be made to send
	r.Header.Set("Content-Type", "application/json")
	resp, err := t.http.Do(r)
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "the KMS does not answer now")
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxTransit+1))
	switch {
	case err != nil:
		return problem.Wrap(err, problem.Unavailable, "the KMS does not answer now")
	case len(answer) > maxTransit:
		return problem.New(problem.Internal, "the KMS answered with over %d bytes", maxTransit)
	case resp.StatusCode == http.StatusForbidden:
		return problem.Wrap(reasonOf(resp, answer), problem.Unavailable, "the KMS refuses the token for %s of key %s", operation, t.cfg.Key)
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return problem.Wrap(reasonOf(resp, answer), problem.Unavailable, "the KMS cannot answer now; is it sealed?")
	case resp.StatusCode != http.StatusOK:
		return problem.Wrap(reasonOf(resp, answer), problem.Internal, "the KMS refuses %s of key %s", operation, t.cfg.Key)
	}
	var a struct{ Data json.RawMessage }
	if err = json.Unmarshal(answer, &a); err == nil {
		err = json.Unmarshal(a.Data, data)
	}
	if err != nil {
		return problem.New(problem.Internal, "the KMS answered with what cannot be read") // the cause could show a key
	}
	return nil
}

// reasonOf is what a KMS says of a refusal, for logs.
func reasonOf(resp *http.Response, answer []byte) error {
	var a struct{ Errors []string }
	_ = json.Unmarshal(answer, &a) // without a reason the status has to do
	return fmt.Errorf("status %d: %.300q", resp.StatusCode, strings.Join(a.Errors, "; "))
}
