// Package approvals lets members decide on held calls, and keeps grants.
//
// Hears: call.held.
//
// Says: approval.requested, approval.decided, approval.expired; grant.created, grant.revoked.
//
// Owns: approvals and grants.
//
// Never: lets anyone but a member decide, takes a decision for another digest than the one it is for, or decides the
// call: that stays the broker's.
//
//	call.held -> requested -> decided | expired
package approvals
