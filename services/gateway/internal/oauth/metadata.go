package oauth

import (
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
)

// resourceMetadata is what RFC 9728, section 2, has of us.
type resourceMetadata struct {
	Resource             string   `json:"resource"`
	Name                 string   `json:"resource_name"`
	AuthorizationServers []string `json:"authorization_servers"`
	Scopes               []string `json:"scopes_supported"`
	Methods              []string `json:"bearer_methods_supported"`
}

// serverMetadata is what RFC 8414, section 2, has of us.
type serverMetadata struct {
	Issuer            string   `json:"issuer"`
	Authorize         string   `json:"authorization_endpoint"`
	Token             string   `json:"token_endpoint"`
	Revoke            string   `json:"revocation_endpoint"`
	Scopes            []string `json:"scopes_supported"`
	ResponseTypes     []string `json:"response_types_supported"`
	ResponseModes     []string `json:"response_modes_supported"`
	GrantTypes        []string `json:"grant_types_supported"`
	Challenges        []string `json:"code_challenge_methods_supported"`
	TokenMethods      []string `json:"token_endpoint_auth_methods_supported"`
	RevocationMethods []string `json:"revocation_endpoint_auth_methods_supported"`
	Issuers           bool     `json:"authorization_response_iss_parameter_supported"`
	Documents         bool     `json:"client_id_metadata_document_supported"`
}

// The scopes. There is one way in: what a client may do, the agent's grants say. The second only asks for a refresh token, as
// some clients do before they keep one.
const (
	Scope   = "mcp"
	offline = "offline_access"
)

// resourcePath is where RFC 9728, section 3.1, has a resource's metadata: before the path of the resource.
const resourcePath = "/.well-known/oauth-protected-resource"

// clientMetadata is what is said of this site as a client of others' authorization servers: of the broker, whose logins come back
// here (draft-ietf-oauth-client-id-metadata-document).
type clientMetadata struct {
	ClientID  string   `json:"client_id"`
	Name      string   `json:"client_name"`
	URI       string   `json:"client_uri"`
	Redirects []string `json:"redirect_uris"`
	Grants    []string `json:"grant_types"`
	Answers   []string `json:"response_types"`
	Method    string   `json:"token_endpoint_auth_method"`
	Kind      string   `json:"application_type"`
}

// Document is where it says so, empty where nobody could believe it: it is https or nothing.
func (s *Server) Document() string {
	if !s.Site.Secure() {
		return ""
	}
	return s.resource(documentPath)
}

// describe adds the documents that clients begin with. They are the same for everybody, and any page may read them.
func (s *Server) describe(mux *http.ServeMux) {
	resource := func(path func(*http.Request) (string, bool)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			at, ok := path(r)
			if !ok {
				problem.WriteHTTP(w, problem.New(problem.NotFound, "there is no such resource"))
				return
			}
			// A reader has to refuse what names another resource than the one that it asked about (section 3.3).
			document(w, resourceMetadata{Resource: s.resource(at), Name: "ExecWarden", AuthorizationServers: append(slices.Clone(s.Issuers), s.Issuer()),
				Scopes: []string{Scope}, Methods: []string{"header"}})
		}
	}
	fixed := func(path string) func(*http.Request) (string, bool) {
		return func(*http.Request) (string, bool) { return path, true }
	}
	mux.HandleFunc("GET "+resourcePath, resource(fixed("")))
	mux.HandleFunc("GET "+resourcePath+"/mcp", resource(fixed("/mcp")))
	mux.HandleFunc("GET "+resourcePath+"/mcp/c/{connection}", resource(func(r *http.Request) (string, bool) {
		name, err := id.Named[id.Connection](r.PathValue("connection"))
		return "/mcp/c/" + id.Name(name), err == nil
	}))
	server := func(w http.ResponseWriter, _ *http.Request) {
		methods := []string{"none", "client_secret_basic", "client_secret_post"}
		document(w, serverMetadata{Issuer: s.Issuer(), Authorize: s.resource(AuthorizePath), Token: s.resource(tokenPath), Revoke: s.resource(revokePath),
			Scopes: []string{Scope, offline}, ResponseTypes: []string{"code"}, ResponseModes: []string{"query"},
			GrantTypes: []string{"authorization_code", "refresh_token", "client_credentials"}, Challenges: []string{"S256"},
			TokenMethods: methods, RevocationMethods: methods, Issuers: true, Documents: true})
	}
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", server)
	mux.HandleFunc("GET /.well-known/openid-configuration", server) // where some clients look second
	if at := s.Document(); at != "" {
		mux.HandleFunc("GET "+documentPath, func(w http.ResponseWriter, _ *http.Request) {
			document(w, clientMetadata{ClientID: at, Name: "ExecWarden", URI: s.Issuer(), Redirects: []string{s.resource(CallbackPath)},
				Grants: []string{"authorization_code", "refresh_token"}, Answers: []string{"code"}, Method: "none", Kind: "web"})
		})
	}
	mux.HandleFunc("/.well-known/", func(w http.ResponseWriter, _ *http.Request) {
		problem.WriteHTTP(w, problem.New(problem.NotFound, "there is no such document"))
	})
}

func document(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}

// Issuer is the server's name: the site without a path.
func (s *Server) Issuer() string { return s.resource("") }

// resource is an absolute URL of the site. The site itself has no slash at its end.
func (s *Server) resource(path string) string { return s.Site.URL(path, nil) }

// Covers says whether a token for a resource is one for a path of the endpoint. One for the site is for all of it; any other
// for exactly its own path, so that what was consented to for one connection opens no other.
func (s *Server) Covers(resource, path string) bool {
	return resource == s.Issuer() || resource == s.resource(path)
}

// target reads a resource that a client names, which has to be one of ours, as the metadata spells it. Of the site alone the
// spelling with a slash is taken too: it is what URL parsers make of it.
func (s *Server) target(resource string) (string, error) {
	switch resource {
	case "":
		return "", refuse(invalidTarget, "say for which MCP endpoint: resource=%s", s.resource("/mcp"))
	case s.Issuer(), s.Issuer() + "/":
		return s.Issuer(), nil
	case s.resource("/mcp"):
		return resource, nil
	}
	if name, ok := strings.CutPrefix(resource, s.resource("/mcp/c/")); ok && !connection.Method(name) {
		if _, err := id.Named[id.Connection](name); err == nil {
			return resource, nil
		}
	}
	return "", refuse(invalidTarget, "the resource is none of this server, or is spelt otherwise than %s", s.resource("/mcp"))
}

// scopes checks what a client asks for.
func scopes(text string) error {
	for _, scope := range strings.Fields(text) {
		if scope != Scope && scope != offline {
			return refuse(invalidScope, "there is one scope, %s, and %s beside it", Scope, offline)
		}
	}
	return nil
}

func cutType(header string) (kind string, params map[string]string, ok bool) {
	kind, params, err := mime.ParseMediaType(header)
	return kind, params, err == nil
}
