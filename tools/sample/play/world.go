package play

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"github.com/execwarden/execwarden/tools/sample"
	"github.com/execwarden/execwarden/tools/sample/fakegithub"
	"github.com/execwarden/execwarden/tools/sample/internalapi"
	"github.com/execwarden/execwarden/tools/sample/publicpage"
)

// server is a small server on loopback.
type server interface {
	Start(ctx context.Context) error
	URL() string
	Close() error
}

// world is what surrounds ExecWarden in the sample.
type world struct {
	github *fakegithub.Server
	api    *internalapi.Server
	page   *publicpage.Server
	model  model
	open   []server
}

// model is what the agent thinks with: scripted, unless the environment names a real one.
type model struct {
	protocol, url, name, key string
	scripted                 bool
}

const githubToken = "ghp_a_pretend_token_for_the_pretend_github"

func startWorld(ctx context.Context, dir string) (w *world, err error) {
	w = &world{api: internalapi.New(""), page: publicpage.New(publicpage.Example)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.github, err = fakegithub.New(fakegithub.Config{Token: githubToken, CommentsFile: filepath.Join(dir, "github-comments.jsonl")}); err != nil {
		return w, err
	}
	for _, s := range []server{w.github, w.api, w.page} {
		if err := w.start(ctx, s); err != nil {
			return w, err
		}
	}
	w.model = model{protocol: os.Getenv("EXECWARDEN_MODEL_PROTOCOL"), url: os.Getenv("EXECWARDEN_MODEL_URL"),
		name: os.Getenv("EXECWARDEN_MODEL"), key: os.Getenv("EXECWARDEN_MODEL_KEY")}
	if w.model.url == "" {
		scripted := sample.NewModel(sample.Script())
		if err := w.start(ctx, scripted); err != nil {
			return w, err
		}
		w.model = model{protocol: "openai", url: scripted.URL(), name: "scripted-triage", scripted: true}
	}
	if w.model.protocol == "" {
		w.model.protocol = "openai"
	}
	if w.model.name == "" {
		return w, errors.New("EXECWARDEN_MODEL_URL is set, and EXECWARDEN_MODEL does not say which model")
	}
	return w, nil
}

func (w *world) start(ctx context.Context, s server) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	w.open = append(w.open, s)
	return nil
}

func (w *world) close() error {
	var err error
	for _, s := range w.open {
		err = errors.Join(err, s.Close())
	}
	return err
}

func (w *world) describe(out io.Writer) {
	kind := "a real model"
	if w.model.scripted {
		kind = "a SCRIPTED model, no intelligence in it: set EXECWARDEN_MODEL_URL, EXECWARDEN_MODEL and EXECWARDEN_MODEL_KEY for a real one"
	}
	fmt.Fprintf(out, "  model         %s at %s\n                (%s)\n", w.model.name, w.model.url, kind)
	fmt.Fprintf(out, "  GitHub        %s (a small fake; its comments are kept)\n", w.github.URL())
	fmt.Fprintf(out, "  internal API  %s (a real MCP server)\n", w.api.URL())
	fmt.Fprintf(out, "  public page   %s/status.json\n", w.page.URL())
}

func host(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}
