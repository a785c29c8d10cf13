// Package egress is every outbound HTTP request of ExecWarden: scripts' fetches, tool upstreams, model calls. It is an
// http.RoundTripper that follows rules, and whose requests cannot be turned against the network they start from.
//
// An address is judged when it is dialled, after the name was resolved and by the very connection that is made, so a
// name that resolves differently the second time gains nothing. Redirects are new requests and are judged as such.
// What a URL may say is narrow: http or https, ports 80 and 443 unless a rule names another, no user, and no number that
// some resolver might take for an address.
//
// Every refusal is a problem: Denied for what no rule allows, Invalid for a request that is not well formed, TooLarge
// and Timeout for an answer beyond its limits, Unavailable for a server that does not answer.
package egress
