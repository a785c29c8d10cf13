// Package webhook plays GitHub's sender: GitHub's own example payloads, signed and delivered as GitHub does.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
)

//go:embed testdata/*.json
var payloads embed.FS

// Example names a payload by event and action.
type Example string

const (
	IssuesOpened        Example = "issues.opened"
	IssuesEdited        Example = "issues.edited"
	IssueCommentCreated Example = "issue_comment.created"
	Push                Example = "push"
	Ping                Example = "ping"
)

// Examples lists every payload there is.
var Examples = []Example{IssuesOpened, IssuesEdited, IssueCommentCreated, Push, Ping}

// Payload returns a payload. It panics for a name that is none of Examples.
func Payload(e Example) []byte {
	raw, err := payloads.ReadFile("testdata/" + string(e) + ".json")
	if err != nil {
		panic(err)
	}
	return raw
}

// Sign returns the X-Hub-Signature-256 of a body.
func Sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// Delivery is one webhook delivery. Delivering it twice is GitHub's redelivery: the same id.
type Delivery struct {
	URL    string
	Secret string
	Event  string // without the action: "issues"
	ID     string // X-GitHub-Delivery, a GUID
	HookID string // X-GitHub-Hook-ID, a number
	Body   []byte
}

// Deliver sends d. The caller closes the response's body.
func Deliver(ctx context.Context, client *http.Client, d Delivery) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(d.Body))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{
		"User-Agent":          {"GitHub-Hookshot/0000000"},
		"Content-Type":        {"application/json"},
		"X-Hub-Signature-256": {Sign(d.Secret, d.Body)},
		// Not in Go's canonical form, but in GitHub's, as a receiver gets them.
		"X-GitHub-Event":                         {d.Event},
		"X-GitHub-Delivery":                      {d.ID},
		"X-GitHub-Hook-ID":                       {d.HookID},
		"X-GitHub-Hook-Installation-Target-Type": {"repository"},
	}
	return client.Do(req)
}
