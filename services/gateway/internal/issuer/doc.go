// Package issuer takes access tokens of authorization servers that are not ours: a company's own, that knows its agents. A
// token is a JWT (RFC 9068, but for what issuers leave out). It is believed about who an agent is, by an expression that the
// operator wrote, and about nothing that the agent may do.
package issuer
