// Package toolbroker decides every call and makes the calls to providers.
//
// Hears: call.requested, approval.decided, approval.expired, call.admitted for route upstream, run.cancelled,
// connection.defined; and the control stream, as its view of agents, grants, connections, members and volumes; and machines'
// connectors: git requests of calls that a connection lends to.
//
// Says: call.admitted, call.held, call.refused; the outcomes of upstream calls, and live what they say while they run;
// connection.defined, connection.listed, connection.login_changed; key.published; visit.admitted.
//
// Owns: connections, provider credentials and logins, the decision on each call, and the key that signs permits.
//
// Never: lends a machine a credential, only what one request gets with it; acts before the admission is durable, releases a result before its outcome is, tells anyone a credential,
// or repeats an effect that it cannot look up.
//
//	requested --policy--> refused
//	                 \--> held --approval decided--> policy again --> admitted | refused
//	                 \--> admitted --claim--> provider --> finished | failed | cancelled | unknown
package toolbroker
