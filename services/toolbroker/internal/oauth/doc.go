// Package oauth is the broker as an OAuth 2.1 client of the servers that protect MCP connections.
//
//	login:   discover (RFC 9728, RFC 8414) -> client (given, or registered by RFC 7591) -> browser (PKCE S256, state)
//	         -> code, checked by state and issuer (RFC 9207) -> tokens, sealed
//	a call:  sealed token, if it is fresh -> else one refresh, whoever asks and on however many brokers
//	the end: tokens revoked (RFC 7009), sealed entries deleted
//
// Every request for a token names the resource that it is for (RFC 8707), so that what one server is given cannot be
// used at another. No token is kept in memory between requests: what is deleted from the vault is gone.
//
// The SDK's types and parsers are used, and not its requests: those refuse addresses that a connection may name, cannot
// send the resource along with a refresh, and quote answers, which hold secrets, in their errors.
package oauth
