package courier

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// secretPrefix starts a signing secret, as Standard Webhooks writes it.
const secretPrefix = "whsec_"

// NewSecret makes a signing secret of 256 bits.
func NewSecret() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(raw)
}

// CheckSecret says what is wrong with a signing secret, without repeating it.
func CheckSecret(text string) error {
	key, err := keyOf(text)
	if err != nil || len(key) < 24 || len(key) > 64 {
		return problem.New(problem.Invalid, "a signing secret is %s and 24 to 64 bytes in base64", secretPrefix)
	}
	return nil
}

func keyOf(text string) ([]byte, error) {
	text, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return nil, errors.New("no prefix")
	}
	return base64.StdEncoding.DecodeString(text)
}

// event is the body of a webhook (Standard Webhooks 1.0, "payload structure").
type event struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      data      `json:"data"`
}

type data struct {
	Notice    id.Notice       `json:"notice"`
	Tenant    id.Tenant       `json:"tenant"`
	Approval  id.Approval     `json:"approval,omitempty"`
	State     string          `json:"state,omitempty"`
	By        string          `json:"by,omitempty"`
	Agent     id.Agent        `json:"agent,omitempty"`
	Tool      string          `json:"tool,omitempty"`
	Run       id.Run          `json:"run,omitempty"`
	Grant     id.Grant        `json:"grant,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	ExpiresAt time.Time       `json:"expires_at,omitzero"`
	Link      string          `json:"link,omitempty"`
	Args      json.RawMessage `json:"args,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
}

// webhook signs the notice. The id stays the same for every attempt; time and signature are the attempt's.
func (c *Courier) webhook(ctx context.Context, to Address, n Notice) error {
	key, err := keyOf(to.Secret)
	if err != nil {
		return &Refusal{Reason: "the target has no signing secret", Final: true}
	}
	now := c.now().UTC()
	body, err := json.Marshal(event{"approval." + string(n.About), now.Truncate(time.Millisecond), data{
		n.ID, n.Tenant, n.Approval, n.State, n.By, n.Agent, n.Tool, n.Run, n.Grant, n.Reason, n.Expires, n.Link, n.Args, n.Input,
	}})
	if err != nil {
		return &Refusal{Reason: "the notice cannot be written", Final: true}
	}
	stamp := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.", n.ID, stamp)
	mac.Write(body)
	return c.post(ctx, to, body, http.Header{
		"Webhook-Id": {string(n.ID)}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))},
	})
}

// post sends JSON. A redirect is not followed: the notice is for whom it was addressed to.
func (c *Courier) post(ctx context.Context, to Address, body []byte, header http.Header) error {
	u, err := url.Parse(to.To)
	if err != nil {
		return &Refusal{Reason: "the target's URL cannot be read", Final: true}
	}
	way, err := egress.New(egress.Rule{Hosts: []string{u.Host}, Methods: []string{http.MethodPost}, AllowPrivate: to.Private, MaxRedirects: -1, MaxBytes: 64 << 10, Timeout: SendTimeout})
	if err != nil {
		return &Refusal{Reason: "the target's URL leads nowhere", Final: true}
	}
	defer way.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.To, bytes.NewReader(body))
	if err != nil {
		return &Refusal{Reason: "the target's URL cannot be read", Final: true}
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "execwarden")
	resp, _, err := way.Do(ctx, req)
	if err != nil {
		// Of what went wrong only the code is recorded: the message may have the URL in it.
		code := problem.CodeOf(err)
		return &Refusal{Reason: "it was not reached: " + string(code), Final: code == problem.Denied || code == problem.Invalid}
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // what it says beyond its status is nobody's business
	return refusal(resp, c.now())
}

// refusal reads an answer. 5xx, 408, 425 and 429 may be better later; any other than 2xx will not.
func refusal(resp *http.Response, now time.Time) error {
	status := resp.StatusCode
	if status >= 200 && status < 300 {
		return nil
	}
	r := &Refusal{Reason: fmt.Sprintf("it answered %d", status), Final: status < 500}
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		r.Final = false
	}
	if text := resp.Header.Get("Retry-After"); text != "" { // RFC 9110, section 10.2.3
		if seconds, err := strconv.Atoi(text); err == nil {
			r.After = time.Duration(min(max(seconds, 0), int(maxAfter/time.Second))) * time.Second
		} else if at, err := http.ParseTime(text); err == nil {
			r.After = min(max(at.Sub(now), 0), maxAfter)
		}
	}
	return r
}

// maxAfter is the longest that a target may ask to be left alone at once.
const maxAfter = time.Hour
