// Package api is the gateway's HTTP face for programs: JSON in and out, problems as RFC 9457. openapi.yaml describes
// it, and a test holds the two to each other.
//
// Each route says who may use it. A handler reads what the client sent into typed values, asks whoever owns the
// matter, and gives the answer on; it decides nothing itself.
package api
