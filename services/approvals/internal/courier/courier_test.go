package courier

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/schemas/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	rawKey = "0123456789abcdef0123456789abcdef"
)

func waiting() Notice {
	return Notice{
		ID: "ntc_1", About: target.Requested, Tenant: "tnt_main", Approval: "apr_1", State: "waiting", Agent: "agt_triage", Tool: "github.add_issue_comment",
		Run: "run_1", Grant: "grt_comment", Reason: "the grant holds every call for approval", Expires: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC),
		Link: "https://warden.example.com/approvals/apr_1",
	}
}

// receiver is an HTTP server and the address that leads there.
func receiver(t *testing.T, serve http.HandlerFunc) Address {
	t.Helper()
	srv := httptest.NewServer(serve)
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Address{To: srv.URL + "/hooks/secret-path?k=secret-query", Secret: secret, Private: []string{u.Host}}
}

// verify is the receiver's side of Standard Webhooks 1.0, written from its text: the signed content is id, timestamp and
// body joined by dots; the header may hold several signatures, separated by spaces, each "v1," and base64.
func verify(r *http.Request, body, key []byte) error {
	mac := hmac.New(sha256.New, key)
	_, _ = io.WriteString(mac, strings.Join([]string{r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), string(body)}, "."))
	want := mac.Sum(nil)
	for _, one := range strings.Fields(r.Header.Get("webhook-signature")) {
		version, text, _ := strings.Cut(one, ",")
		got, err := base64.StdEncoding.DecodeString(text)
		if version == "v1" && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return errors.New("no signature matches")
}

func TestWebhookIsSigned(t *testing.T) {
	var got atomic.Value
	to := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = verify(r, body, []byte(rawKey))
		}
		if err != nil || verify(r, append(body, ' '), []byte(rawKey)) == nil || verify(r, body, []byte("another key of thirty-two bytes.")) == nil {
			t.Errorf("%s %s: %v", r.Header, body, err)
		}
		got.Store(string(body) + r.Header.Get("webhook-id"))
		w.WriteHeader(http.StatusAccepted)
	})
	c := New(nil)
	n := waiting()
	if err := c.Carry(t.Context(), target.Webhook, to, n); err != nil {
		t.Fatal(err)
	}
	text := got.Load().(string)
	for _, want := range []string{`"type":"approval.requested"`, `"approval":"apr_1"`, `"state":"waiting"`, `"tool":"github.add_issue_comment"`, `"expires_at":"2026-12-01T12:00:00Z"`, `"link":"https://warden.example.com/approvals/apr_1"`, `"tenant":"tnt_main"`, "ntc_1"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(text, "args") {
		t.Errorf("the arguments are told: %s", text)
	}
	n.Args = []byte(`{"body":"hello"}`)
	n.Input = []byte(`{"requestState":"s"}`)
	if err := c.Carry(t.Context(), target.Webhook, to, n); err != nil || !strings.Contains(got.Load().(string), `"args":{"body":"hello"},"input":{"requestState":"s"}`) {
		t.Errorf("%v: %s", err, got.Load())
	}
	for _, bad := range []string{"", "whsec_", "whsec_!!!", "0123456789abcdef0123456789abcdef", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23)), "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65))} {
		if CheckSecret(bad) == nil {
			t.Errorf("%q is taken for a secret", bad)
		}
	}
	if made := NewSecret(); CheckSecret(made) != nil || made == NewSecret() {
		t.Errorf("%q is made", made)
	}
}

// What an agent or a provider may have chosen does nothing in a chat but stand there.
func TestSlackShape(t *testing.T) {
	var text string
	to := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Text string }
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&body); err != nil || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("webhook-signature") != "" {
			t.Errorf("%v %s", err, r.Header)
		}
		text = body.Text
		fmt.Fprint(w, "ok")
	})
	n := waiting()
	n.Tool, n.Reason = "x.<!channel>", "<https://evil.example|look> @here `*b*`\n\u202efake line: yes\uFE01"
	n.Args = []byte("{\"a\":\"``` <!everyone> @all\"}")
	n.Input = []byte("{\"b\":\"``` <!here> @all answered\u202e\"}")
	if err := New(nil).Carry(t.Context(), target.Slack, to, n); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<!", "<https://evil", "@here", "@all", "\u202e", "\uFE01", "\nfake line", "``` "} {
		if strings.Contains(text, bad) {
			t.Errorf("%q in %s", bad, text)
		}
	}
	for _, want := range []string{"*Waits for approval: x.", "Why it is held: ", "Until: Tue, 01 Dec 2026 12:00:00 UTC", "answered", "\n<https://warden.example.com/approvals/apr_1|Open the approval>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	n = waiting()
	n.About, n.State, n.By = target.Decided, "denied", "mem_owner"
	if err := New(nil).Carry(t.Context(), target.Slack, to, n); err != nil || !strings.HasPrefix(text, "*Denied: ") || !strings.Contains(text, "Decided by: mem_owner") || strings.Contains(text, "Until") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestRefusals(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	answer := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			fmt.Fprint(w, "the answer names secret-path")
		}
	}
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closedHost := strings.TrimPrefix(closed.URL, "http://")
	closed.Close()
	for name, c := range map[string]struct {
		to    Address
		final bool
		after time.Duration
		says  string
	}{
		"500":                  {to: receiver(t, answer(500)), says: "it answered 500"},
		"503 for a while":      {to: receiver(t, answer(503, "Retry-After", "120")), after: 2 * time.Minute, says: "it answered 503"},
		"429":                  {to: receiver(t, answer(429, "Retry-After", "7")), after: 7 * time.Second, says: "it answered 429"},
		"429 until a time":     {to: receiver(t, answer(429, "Retry-After", now.Add(time.Minute).Format(http.TimeFormat))), after: time.Minute, says: "it answered 429"},
		"429 for ever":         {to: receiver(t, answer(429, "Retry-After", "999999999999")), after: time.Hour, says: "it answered 429"},
		"429 for a year":       {to: receiver(t, answer(429, "Retry-After", "31536000")), after: time.Hour, says: "it answered 429"},
		"429 since":            {to: receiver(t, answer(429, "Retry-After", "-5")), says: "it answered 429"},
		"408":                  {to: receiver(t, answer(408)), says: "it answered 408"},
		"404":                  {to: receiver(t, answer(404)), final: true, says: "it answered 404"},
		"410":                  {to: receiver(t, answer(410)), final: true, says: "it answered 410"},
		"a redirect":           {to: receiver(t, answer(307, "Location", other.URL)), final: true, says: "it answered 307"},
		"nobody there":         {to: Address{To: "http://" + closedHost + "/secret-path", Secret: secret, Private: []string{closedHost}}, says: "it was not reached: unavailable"},
		"a private address":    {to: Address{To: other.URL + "/secret-path", Secret: secret}, final: true, says: "it was not reached: denied"},
		"a metadata address":   {to: Address{To: "http://169.254.169.254/secret-path", Secret: secret}, final: true, says: "it was not reached: denied"},
		"another private port": {to: Address{To: other.URL, Secret: secret, Private: []string{"127.0.0.1:1"}}, final: true, says: "it was not reached: denied"},
		"no secret":            {to: Address{To: other.URL}, final: true, says: "the target has no signing secret"},
		"an endless answer":    {to: receiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); _, _ = w.Write(make([]byte, 1<<20)) }), says: "it answered 500"},
	} {
		courier := New(nil)
		courier.now = func() time.Time { return now }
		var r *Refusal
		if err := courier.Carry(t.Context(), target.Webhook, c.to, waiting()); !errors.As(err, &r) || r.Final != c.final || r.After != c.after || r.Reason != c.says {
			t.Errorf("%s: %+v", name, err)
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("others were asked %d times", n)
	}
}

// A slow target costs one attempt's time, and is left as soon as the process ends.
func TestSlowTarget(t *testing.T) {
	release := make(chan struct{})
	to := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- New(nil).Carry(ctx, target.Webhook, to, waiting()) }()
	cancel()
	if err := <-ended; err == nil {
		t.Error("a target that never answered took the notice")
	}
}
