package command

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

// token finds the access token. It is never in a flag, which every process of the machine can read.
func (a *app) token() (vault.Secret, error) {
	path := a.flags.tokenFile
	if path == "" {
		path = a.getenv("EXECWARDEN_TOKEN_FILE")
	}
	text := ""
	if path == "" {
		text = a.getenv("EXECWARDEN_TOKEN")
	}
	if path == "" && text == "" {
		path = ownerTokenFile(os.Geteuid(), a.getenv)
	}
	if path != "" {
		var err error
		text, err = keyfile.Read(path)
		if errors.Is(err, os.ErrNotExist) {
			return vault.Secret{}, problem.Wrap(err, problem.Unauthenticated, "there is no access token: %s does not exist. `execwarden up` makes it; for another deployment, save a token of yours in a file of mode 600 and name it by --token-file", path)
		}
		if err != nil {
			return vault.Secret{}, err
		}
	}
	text = strings.TrimSpace(text)
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return vault.Secret{}, problem.New(problem.Unauthenticated, "%s does not hold an access token", or(path, "EXECWARDEN_TOKEN"))
	}
	return vault.NewSecret(text), nil
}

// ownerTokenFile is where `execwarden up` keeps the owner's token: in its data directory.
func ownerTokenFile(uid int, getenv func(string) string) string {
	const name = "owner.token"
	if uid == 0 {
		return filepath.Join("/var/lib/execwarden", name)
	}
	if state := getenv("XDG_STATE_HOME"); filepath.IsAbs(state) { // the XDG specification has relative ones ignored
		return filepath.Join(state, "execwarden", name)
	}
	return filepath.Join(getenv("HOME"), ".local", "state", "execwarden", name)
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
