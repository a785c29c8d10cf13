// Package approvals lets members decide on held calls, and keeps grants.
//
// Hears: call.held; and the control stream, as its view of members.
//
// Says: approval.requested, approval.edited, approval.voted, approval.escalated, approval.decided, approval.expired; grant.created, grant.revoked.
//
// Owns: approvals and grants.
//
// Never: lets anyone but a member decide, counts the vote of one who is none any more, takes a decision for another
// digest than the one it is for, or decides the call: that stays the broker's.
//
//	call.held -> requested -> voted | edited | escalated ... -> decided | expired
package approvals
