// Package client speaks ExecWarden's HTTP API.
//
// Every failure is a problem.Error: the server's own when it sent one, and otherwise one that says what a person can
// do about it. Answers are read up to a limit, redirects are not followed (they would carry the token elsewhere), and
// nothing is repeated that could happen twice.
package client
