package model

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// Provider gives answers. Complete calls onDelta (which may be nil) with each piece of text as it arrives; the pieces
// are a draft that only the returned answer makes true. Its errors are *Failure, with the codes that failure.go lists.
type Provider interface {
	Complete(ctx context.Context, r Request, onDelta func(string)) (Answer, error)
}

// Protocol names a wire protocol.
type Protocol string

const (
	OpenAI    Protocol = "openai"    // Chat Completions: OpenAI, Ollama, llama.cpp, vLLM and many others
	Anthropic Protocol = "anthropic" // Messages
)

// Config describes one provider.
type Config struct {
	Protocol Protocol
	BaseURL  string // as the provider documents it: https://api.openai.com/v1, http://127.0.0.1:11434
	Key      Key    // empty for a server that asks for none
	Model    string // used by requests that name none
	Limits   Limits
}

// New returns the provider that cfg describes. Requests go through client, whose transport decides which addresses
// may be reached; it is needed, so that nobody dials around that decision by accident.
func New(cfg Config, client *http.Client) (Provider, error) {
	base, err := baseURL(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, problem.New(problem.Invalid, "a model provider needs an HTTP client")
	}
	if strings.ContainsFunc(cfg.Key.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, problem.New(problem.Invalid, "the model key holds white space or characters outside ASCII; was it copied whole?")
	}
	ask := newAsker(cfg, client)
	switch cfg.Protocol {
	case OpenAI:
		return newOpenAI(ask, base), nil
	case Anthropic:
		return newAnthropic(ask, base), nil
	}
	return nil, problem.New(problem.Invalid, "model protocol %q is not one of openai, anthropic", cfg.Protocol)
}

// baseURL refuses what would leak or be lost: a URL is logged, so it carries no credentials, and a path is appended
// to it, so it carries no query.
func baseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		// The parser's error repeats its input, which may hold a credential.
		return nil, problem.New(problem.Invalid, "the model base URL is not an absolute http or https URL")
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, problem.New(problem.Invalid, "the model base URL must have no user, query or fragment")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}
