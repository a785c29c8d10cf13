package apipackage

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"golang.org/x/net/http/httpguts"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

// Manifest is what a person says of an API before agents may use it.
type Manifest struct {
	Name    string `json:"name" yaml:"name"`
	Version string `json:"version" yaml:"version"`
	// BaseURL is where the calls go, and the only place: the servers that the document names are not looked at.
	BaseURL string `json:"base_url" yaml:"base_url"`
	Auth    Auth   `json:"auth" yaml:"auth"`
	// IdempotencyHeader carries the effect's key with each call of a keyed operation. Defaults to none.
	IdempotencyHeader string `json:"idempotency_header,omitempty" yaml:"idempotency_header"`
	// Include chooses the operations that become tools. At least one is needed.
	Include []Selector `json:"include" yaml:"include"`
	// Exclude takes some of them away again.
	Exclude []Selector `json:"exclude,omitempty" yaml:"exclude"`
	// Operations says more of single operations, by operationId or, as for one that has none, "GET /path".
	Operations map[string]Override `json:"operations,omitempty" yaml:"operations"`
}

// Auth says where the connection's credential goes.
type Auth struct {
	Kind AuthKind `json:"kind" yaml:"kind"`
	Name string   `json:"name,omitempty" yaml:"name"` // of the header or query parameter
}

// AuthKind is one of the ways to send a credential.
type AuthKind string

// The ways to send a credential. With basic it is user:password.
const (
	AuthNone   AuthKind = "none"
	AuthBearer AuthKind = "bearer"
	AuthBasic  AuthKind = "basic"
	AuthHeader AuthKind = "header"
	AuthQuery  AuthKind = "query"
)

// Selector matches operations by one of its fields, in which * stands for any text and ? for one character.
type Selector struct {
	Operation string `json:"operation,omitempty" yaml:"operation"` // an operationId, or "GET /path"
	Tag       string `json:"tag,omitempty" yaml:"tag"`
}

// Override says of one operation what the document cannot be trusted, or is not able, to say. Without it GET and HEAD are
// pure, and everything else writes and is opaque.
type Override struct {
	Rename      string            `json:"rename,omitempty" yaml:"rename"`
	Description string            `json:"description,omitempty" yaml:"description"`
	Effect      connection.Effect `json:"effect,omitempty" yaml:"effect"`
	Writes      *bool             `json:"writes,omitempty" yaml:"writes"`
	// Probe names the reading operation that succeeds exactly when this one's effect is there, and is otherwise not
	// found. It is called with those of the arguments that it takes too. A probeable operation needs one.
	Probe string `json:"probe,omitempty" yaml:"probe"`
	// MediaType chooses among several that the body may have. Defaults to JSON where there is one.
	MediaType string `json:"media_type,omitempty" yaml:"media_type"`
}

// maxManifest is the largest manifest, in bytes.
const maxManifest = 1 << 20

// ParseManifest reads a manifest, in YAML or JSON. A field that it does not know is an error.
func ParseManifest(raw []byte) (Manifest, error) {
	var m Manifest
	if len(raw) > maxManifest {
		return m, problem.New(problem.TooLarge, "the manifest is over %d MiB", maxManifest>>20)
	}
	if err := yaml.UnmarshalWithOptions(raw, &m, yaml.Strict()); err != nil {
		return m, problem.Wrap(err, problem.Invalid, "the manifest cannot be read: %.500s", yaml.FormatError(err, false, false))
	}
	return m, m.validate()
}

var (
	packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,47}$`)
	toolName    = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
)

func (m Manifest) validate() error {
	switch {
	case !packageName.MatchString(m.Name):
		return problem.New(problem.Invalid, "the manifest's name %.60q has to be of a-z, 0-9, _ and -, at most 48", m.Name)
	case m.Version == "" || len(m.Version) > 64:
		return problem.New(problem.Invalid, "the manifest needs a version, of at most 64 characters")
	case m.IdempotencyHeader != "" && !settable(m.IdempotencyHeader):
		return problem.New(problem.Invalid, "idempotency_header %.60q is not a header that may be set", m.IdempotencyHeader)
	case len(m.Include) == 0:
		return problem.New(problem.Invalid, `the manifest includes no operation; "include: [{operation: "*"}]" takes all`)
	}
	if _, err := parseBase(m.BaseURL); err != nil {
		return err
	}
	if err := m.Auth.validate(); err != nil {
		return err
	}
	for _, s := range append(append([]Selector(nil), m.Include...), m.Exclude...) {
		if (s.Operation == "") == (s.Tag == "") {
			return problem.New(problem.Invalid, "an include or exclude entry of the manifest has to name an operation or a tag")
		}
	}
	for id, o := range m.Operations {
		if err := o.validate(); err != nil {
			return problem.Wrap(err, problem.Invalid, "operation %.100q of the manifest: %s", id, problem.DetailOf(err).Message)
		}
	}
	return nil
}

func (a Auth) validate() error {
	switch a.Kind {
	case AuthNone, AuthBearer, AuthBasic:
		if a.Name != "" {
			return problem.New(problem.Invalid, "auth of kind %s has no name", a.Kind)
		}
	case AuthHeader:
		if !settable(a.Name) {
			return problem.New(problem.Invalid, "auth name %.60q is not a header that may be set", a.Name)
		}
	case AuthQuery:
		if a.Name == "" {
			return problem.New(problem.Invalid, "auth of kind query needs the parameter's name")
		}
	default:
		return problem.New(problem.Invalid, "auth kind %.60q is none of none, bearer, basic, header, query", a.Kind)
	}
	return nil
}

func (o Override) validate() error {
	switch {
	case o.Rename != "" && !toolName.MatchString(o.Rename):
		return problem.New(problem.Invalid, "rename %.80q has to be of a-z, A-Z, 0-9, _ and -", o.Rename)
	case o.Effect == connection.Probeable && o.Probe == "":
		return problem.New(problem.Invalid, "a probeable operation needs a probe")
	case o.Effect != connection.Probeable && o.Probe != "":
		return problem.New(problem.Invalid, "only a probeable operation has a probe")
	case o.Effect == connection.Pure && o.Writes != nil && *o.Writes:
		return problem.New(problem.Invalid, "what writes is not pure")
	}
	switch o.Effect {
	case "", connection.Pure, connection.Keyed, connection.Probeable, connection.Opaque:
		return nil
	}
	return problem.New(problem.Invalid, "effect %.60q is none of pure, keyed, probeable, opaque", o.Effect)
}

// parseBase reads the address that all calls of a package go to.
func parseBase(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "" || u.User != nil ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || climbs(u.EscapedPath()) {
		return nil, problem.New(problem.Invalid, "base_url has to be a URL such as https://api.example.com/v1, without user, query and fragment")
	}
	return u, nil
}

// canonical is the form of a manifest that goes into a package's digest.
func (m Manifest) canonical() ([]byte, error) { return json.Marshal(m) }

func (m Manifest) chooses(id, route string, tags []string) bool {
	matches := func(s Selector) bool {
		if s.Operation != "" {
			return id != "" && glob(s.Operation, id) || glob(s.Operation, route)
		}
		for _, t := range tags {
			if glob(s.Tag, t) {
				return true
			}
		}
		return false
	}
	for _, s := range m.Exclude {
		if matches(s) {
			return false
		}
	}
	for _, s := range m.Include {
		if matches(s) {
			return true
		}
	}
	return false
}

// glob says whether text is as pattern says. It takes time in proportion to the product of their lengths, at most.
func glob(pattern, text string) bool {
	star, mark := -1, 0
	p, t := 0, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// reserved headers belong to the connection, to the body, or claim to be somebody's word about the caller. No argument
// and no credential sets them.
var reserved = map[string]bool{
	"host": true, "connection": true, "content-length": true, "content-type": true, "transfer-encoding": true, "te": true,
	"trailer": true, "upgrade": true, "keep-alive": true, "expect": true, "forwarded": true, "via": true, "x-real-ip": true,
	"cookie": true, "accept": true, "accept-encoding": true,
}

func settable(header string) bool {
	h := strings.ToLower(header)
	return httpguts.ValidHeaderFieldName(header) && !reserved[h] && !strings.HasPrefix(h, "proxy-") && !strings.HasPrefix(h, "x-forwarded-")
}
