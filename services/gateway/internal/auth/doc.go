// Package auth says who makes a request.
//
//	token   ewt_..., 256 bits; its SHA-256 is the key of a record in the people bucket, the token itself is nowhere
//	code    a token's holder gets one for a browser; good once, for 10 minutes
//	session what a code buys, in a cookie; good for 12 hours, and never longer than its token
//
// Codes and sessions live in memory: after a restart people log in again. Secrets are looked up by their hash, so the
// time that a look-up takes says nothing about any secret.
package auth
