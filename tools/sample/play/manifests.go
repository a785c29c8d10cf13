package play

import (
	"crypto/rand"
	"embed"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// settings fill the manifests.
type settings struct {
	ModelProtocol, ModelURL, ModelName, ModelPrivate, ModelKeyFile string
	PageHost, PageURL                                              string
	GitHubURL, GitHubHost, GitHubTokenFile                         string
	TicketsURL, TicketsHost                                        string
	HookSecretFile                                                 string
}

// writeManifests writes the sample's manifests and the secrets that they refer to, and gives the hook's secret.
func writeManifests(w *world, dir string) (secret string, err error) {
	secrets := filepath.Join(dir, "secrets")
	applied := filepath.Join(dir, "manifests")
	if err := errors.Join(os.MkdirAll(secrets, 0o700), os.MkdirAll(applied, 0o755)); err != nil {
		return "", err
	}
	keep := func(name, text string) (string, error) {
		path := filepath.Join(secrets, name)
		return path, os.WriteFile(path, []byte(text), 0o600)
	}
	s := settings{
		ModelProtocol: w.model.protocol, ModelURL: w.model.url, ModelName: w.model.name, ModelPrivate: private(w.model.url),
		PageHost: host(w.page.URL()), PageURL: w.page.URL() + "/status.json",
		GitHubURL: w.github.URL(), GitHubHost: host(w.github.URL()),
		TicketsURL: w.api.URL(), TicketsHost: host(w.api.URL()),
	}
	secret, err = hookSecret(filepath.Join(secrets, "hook"))
	if err != nil {
		return "", err
	}
	s.HookSecretFile = filepath.Join(secrets, "hook")
	if s.GitHubTokenFile, err = keep("github-token", githubToken); err != nil {
		return "", err
	}
	if w.model.key != "" {
		if s.ModelKeyFile, err = keep("model-key", w.model.key); err != nil {
			return "", err
		}
	}
	all, err := template.ParseFS(manifests, "manifests/*.yaml")
	if err != nil {
		return "", err
	}
	for _, t := range all.Templates() {
		f, err := os.Create(filepath.Join(applied, t.Name()))
		if err != nil {
			return "", err
		}
		if err := errors.Join(t.Execute(f, s), f.Close()); err != nil {
			return "", err
		}
	}
	return secret, nil
}

// hookSecret keeps one secret over the runs of the sample.
func hookSecret(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		return string(text), nil
	}
	var raw [24]byte
	_, _ = rand.Read(raw[:]) // never fails
	secret := hex.EncodeToString(raw[:])
	return secret, os.WriteFile(path, []byte(secret), 0o600)
}

// private is the address of a model that runs on this machine or beside it, "" for one on the internet.
func private(url string) string {
	at, err := netip.ParseAddrPort(host(url))
	if err != nil {
		return ""
	}
	return at.String()
}
