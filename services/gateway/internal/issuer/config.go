package issuer

import (
	"bytes"
	"net/netip"
	"net/url"
	"os"

	"github.com/go-jose/go-jose/v4"
	"github.com/goccy/go-yaml"

	"github.com/execwarden/execwarden/libs/condition"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// Issuer is one entry of the file.
type Issuer struct {
	Issuer     string    `yaml:"issuer"`     // its URL, as its tokens spell it
	Tenant     id.Tenant `yaml:"tenant"`     // whose agents its tokens are of; default: tnt_main
	Audience   string    `yaml:"audience"`   // that its tokens have; default: the URL of the endpoint that is called, or of the site
	Algorithms []string  `yaml:"algorithms"` // of its signatures; default: RS256, PS256, ES256, ES384, EdDSA
	Agent      string    `yaml:"agent"`      // an expression in CEL over claims, that gives the agent's name
	JWKS       string    `yaml:"jwks"`       // where its keys are; default: where its metadata says (RFC 8414, or OpenID Connect)
	Private    []string  `yaml:"private"`    // address:port pairs where it may be reached though not public
	Advertise  bool      `yaml:"advertise"`  // clients are sent to it to log in, rather than to us

	mapping    *condition.Mapping
	algorithms []jose.SignatureAlgorithm
}

// allowed are the algorithms that an issuer may sign with. None and those with a shared secret are not among them: whoever
// could check a token could make one.
var allowed = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

var usual = []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.ES384, jose.EdDSA}

// maxIssuers is how many there may be, and maxFile how large the file, in bytes.
const (
	maxIssuers = 100
	maxFile    = 1 << 20
)

// Load reads the file; an empty path is a file without issuers. Problems: invalid.
func Load(path string) ([]Issuer, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil || len(raw) > maxFile {
		return nil, problem.Wrap(err, problem.Invalid, "issuers_file %s cannot be read, or is over %d bytes", path, maxFile)
	}
	var file struct {
		Issuers []Issuer `yaml:"issuers"`
	}
	if err := yaml.NewDecoder(bytes.NewReader(raw), yaml.Strict()).Decode(&file); err != nil {
		return nil, problem.New(problem.Invalid, "issuers_file %s: %.500v", path, err)
	}
	if len(file.Issuers) > maxIssuers {
		return nil, problem.New(problem.Invalid, "issuers_file %s has over %d issuers", path, maxIssuers)
	}
	seen := map[string]bool{}
	for i := range file.Issuers {
		is := &file.Issuers[i]
		if err := is.validate(); err != nil {
			return nil, problem.New(problem.Invalid, "issuers_file %s, issuer %.200q: %s", path, is.Issuer, problem.DetailOf(err).Message)
		}
		if seen[is.Issuer] {
			return nil, problem.New(problem.Invalid, "issuers_file %s has issuer %.200q twice", path, is.Issuer)
		}
		seen[is.Issuer] = true
	}
	return file.Issuers, nil
}

func (i *Issuer) validate() (err error) {
	invalid := func(format string, args ...any) error { return problem.New(problem.Invalid, format, args...) }
	if err := checkURL(i.Issuer); err != nil {
		return err
	}
	if i.JWKS != "" {
		if err := checkURL(i.JWKS); err != nil {
			return err
		}
	}
	if i.Tenant == "" {
		i.Tenant = "tnt_main"
	}
	if _, err := id.Parse[id.Tenant](string(i.Tenant)); err != nil {
		return invalid("tenant: %v", err)
	}
	for _, p := range i.Private {
		if _, err := netip.ParseAddrPort(p); err != nil {
			return invalid("private %.80q is not an address:port", p)
		}
	}
	if i.Agent == "" {
		return invalid("agent is missing: say which agent a token is of, such as claims.sub")
	}
	if i.mapping, err = condition.ParseMapping(i.Agent); err != nil {
		return err
	}
	i.algorithms = usual
	if len(i.Algorithms) > 0 {
		i.algorithms = nil
	}
	for _, a := range i.Algorithms {
		known := false
		for _, b := range allowed {
			known = known || string(b) == a
		}
		if !known {
			return invalid("algorithm %.20q is none of those of public keys: %v", a, allowed)
		}
		i.algorithms = append(i.algorithms, jose.SignatureAlgorithm(a))
	}
	return nil
}

// checkURL wants https: who can change what keys are answered with can make every token.
func checkURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || len(raw) > 512 {
		return problem.New(problem.Invalid, "%.200q is not an https URL without query and fragment", raw)
	}
	return nil
}
