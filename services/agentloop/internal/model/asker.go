package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// asker is the part of a client that both protocols share: it posts a request and reads the stream of events.
type asker struct {
	client *http.Client
	model  string
	limits Limits

	// reveal, and not the Key: fmt cannot call the methods of an unexported field, so a Key here would print in full
	// when somebody prints a provider.
	reveal func() string
}

func newAsker(cfg Config, client *http.Client) *asker {
	own := *client
	// The key may travel in a header of the provider's own, which net/http would carry along to another host.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &asker{client: &own, model: cfg.Model, limits: cfg.Limits.WithDefaults(), reveal: cfg.Key.Reveal}
}

// stream posts body and calls each with the data of every event, until each says that it is done or the stream ends.
// A stream that ends before is left to the caller to judge.
func (a *asker) stream(ctx context.Context, url string, header http.Header, body any, each func(data []byte) (done bool, err error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(a.limits.Silence, func() { cancel(errSilent) })
	defer silence.Stop()

	resp, err := a.post(ctx, url, header, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	events := newEvents(heard{resp.Body, silence, a.limits.Silence}, a.limits)
	for {
		data, err := events.next()
		var f *Failure
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &f):
			return f
		case err != nil:
			return interrupted(ctx, err, "the connection to the model provider broke in the middle of an answer")
		}
		if done, err := each(data); done || err != nil {
			return err
		}
	}
}

// post returns an answer of 200 that is an event stream, or a Failure.
func (a *asker) post(ctx context.Context, url string, header http.Header, body any) (*http.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, final(problem.Invalid, "the request is not JSON: %v", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return nil, final(problem.Invalid, "the model URL cannot be requested")
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("User-Agent", "execwarden")
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, interrupted(ctx, err, "the model provider cannot be reached")
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, a.refusedBy(resp)
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		resp.Body.Close()
		return nil, final(problem.Upstream, "the model provider answered with content type %q instead of an event stream; is the base URL right?", kind)
	}
	return resp, nil
}

// heard puts the silence off with every byte that arrives.
type heard struct {
	io.Reader
	silence *time.Timer
	limit   time.Duration
}

func (h heard) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.silence.Reset(h.limit)
	}
	return n, err
}
