package manifest

import (
	"path/filepath"
	"strings"

	"github.com/execwarden/execwarden/libs/vault"
)

// maxSecret is the longest secret, in bytes.
const maxSecret = 64 << 10

// secretRef says where a secret is found. A path is relative to the file that names it.
type secretRef struct {
	File string `yaml:"file"`
	Env  string `yaml:"env"`
}

// secret finds a secret now, before anything is sent. Neither it nor a part of it is in any message.
func (d *document) secret(path string, ref *secretRef) *vault.Secret {
	if ref == nil {
		if d.node(path) != nil {
			d.fault(path, "a secret is given as {file: PATH} or {env: NAME}")
		}
		return nil
	}
	if (ref.File == "") == (ref.Env == "") {
		d.fault(path, "a secret is in a file or in the environment: give one of file and env")
		return nil
	}
	text, from := "", "environment variable "+ref.Env
	if ref.Env != "" {
		text = d.getenv(ref.Env)
	} else {
		at := ref.File
		if !filepath.IsAbs(at) {
			at = filepath.Join(filepath.Dir(d.file), at)
		}
		raw, err := readAtMost(at, maxSecret)
		if err != nil {
			d.fault(path, "%v", explain(err))
			return nil
		}
		text, from = string(raw), at
	}
	// An editor ends the last line, and a secret that came by a pipe has none.
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	switch {
	case text == "":
		d.fault(path, "%s is not set, or empty", from)
		return nil
	case len(text) > maxSecret:
		d.fault(path, "%s is over %d bytes", from, maxSecret)
		return nil
	}
	s := vault.NewSecret(text)
	return &s
}
