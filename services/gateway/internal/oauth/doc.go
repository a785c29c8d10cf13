// Package oauth is the authorization server of the MCP endpoint, and says what the endpoint is as a protected resource.
//
// A client that a member let act for an external agent has a login: a token in the record, by which it is revoked, and behind
// it access tokens of 15 minutes, renewed by a refresh token that changes at each use. It is OAuth 2.1 with nothing optional
// that is not needed: authorization code with PKCE (S256), client credentials, refresh, revocation (RFC 7009); a resource is
// named in each request (RFC 8707), the issuer in each answer (RFC 9207). Clients are known by their metadata document, or
// because a member registered them; nobody registers by asking.
package oauth
