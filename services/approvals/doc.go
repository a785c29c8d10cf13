// Package approvals lets members decide on held calls, tells them that there is something to decide, and keeps grants.
//
// Hears: call.held; run.cancelled; its own approvals, to tell of them; and the control stream, as its view of members,
// targets, and what calls rest on.
//
// Says: approval.requested, approval.edited, approval.voted, approval.escalated, approval.decided, approval.expired;
// grant.created, grant.revoked; target.defined; notice.queued, notice.retried, notice.sent, notice.failed.
//
// Owns: approvals, grants, and targets with their addresses.
//
// Never: lets anyone but a member decide, counts the vote of one who is none any more, takes a decision for another
// digest than the one it is for, or decides the call: that stays the broker's.
//
//	call.held -> requested -> voted | edited | escalated ... -> decided | expired
package approvals
