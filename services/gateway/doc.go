// Package gateway is where people and programs meet ExecWarden: the HTTP API, the event tail and the console.
//
// Hears: everything on EW_CONTROL, as a view; news of the ledger, as hints.
//
// Says: tenant.created; member.added, member.removed; token.issued, token.revoked; agent.defined; client.defined.
//
// Owns: tenants, members, agents, access tokens, and OAuth clients with their logins.
//
// Never: acts for somebody whom it has not authenticated, keeps a token (only its hash), or decides anything that
// another service owns: it asks that service by RPC, in the member's name and role, and hands on the answer.
package gateway
