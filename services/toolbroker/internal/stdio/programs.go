package stdio

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// maxFile bounds the file of programs, in bytes.
const maxFile = 1 << 20

// Program is one command.
type Program struct {
	Command       []string          `yaml:"command"`        // argv; the first is an absolute path
	Dir           string            `yaml:"dir"`            // where it runs; default: /
	Env           map[string]string `yaml:"env"`            // all of its environment
	CredentialEnv string            `yaml:"credential_env"` // the variable that gets the connection's credential; empty: it gets none
	Tenants       []id.Tenant       `yaml:"tenants"`        // who may connect it; empty: every tenant of this deployment
}

// Programs are the commands that connections may name.
type Programs map[string]Program

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Load reads the programs of a file; "" has none.
func Load(path string) (Programs, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the file of programs %s cannot be read", path)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil || len(raw) > maxFile {
		return nil, problem.New(problem.Invalid, "the file of programs %s cannot be read, or is over 1 MiB", path)
	}
	var file struct {
		Programs Programs `yaml:"programs"`
	}
	if err := yaml.UnmarshalWithOptions(raw, &file, yaml.Strict()); err != nil {
		return nil, problem.New(problem.Invalid, "the file of programs %s: %v", path, err)
	}
	for name, p := range file.Programs {
		if err := p.check(); err != nil || !id.ValidName(name) {
			return nil, problem.New(problem.Invalid, "the file of programs %s: %.60q: %v", path, name, problemOr(err, "is no name: use a-z, 0-9 and '-'"))
		}
	}
	return file.Programs, nil
}

func problemOr(err error, text string) string {
	if err != nil {
		return problem.DetailOf(err).Message
	}
	return text
}

func (p Program) check() error {
	switch {
	case len(p.Command) == 0 || !filepath.IsAbs(p.Command[0]):
		return problem.New(problem.Invalid, "command has to begin with an absolute path")
	case p.Dir != "" && !filepath.IsAbs(p.Dir):
		return problem.New(problem.Invalid, "dir has to be an absolute path")
	case p.CredentialEnv != "" && !envName.MatchString(p.CredentialEnv):
		return problem.New(problem.Invalid, "credential_env %.60q is not the name of a variable", p.CredentialEnv)
	}
	for name, value := range p.Env {
		if !envName.MatchString(name) || strings.ContainsRune(value, 0) || name == p.CredentialEnv {
			return problem.New(problem.Invalid, "env %.60q is not the name of a variable, or is credential_env too", name)
		}
	}
	for _, t := range p.Tenants {
		if _, err := id.Parse[id.Tenant](string(t)); err != nil {
			return problem.New(problem.Invalid, "tenants: %v", err)
		}
	}
	return nil
}

// Scheme begins the URL of a connection that is a program.
const Scheme = "stdio:"

// Find gives the program that a connection's URL names. What a tenant may not use is not there for it.
func (p Programs) Find(tenant id.Tenant, url string) (Program, error) {
	name := strings.TrimPrefix(url, Scheme)
	found, ok := p[name]
	if !ok || len(found.Tenants) > 0 && !slices.Contains(found.Tenants, tenant) {
		return Program{}, problem.New(problem.Invalid, "this broker runs no program %.60q; its operator lists them in stdio_file", name)
	}
	return found, nil
}
