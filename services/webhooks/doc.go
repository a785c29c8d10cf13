// Package webhooks turns deliveries from GitHub into runs.
//
// Hears: deliveries over HTTP; hook.received, its own event; and the control stream, as its view of triggers.
//
// Says: hook.received, hook.routed, hook.ignored; trigger.defined.
//
// Owns: webhook endpoints with their secrets, and triggers.
//
// Never: puts anything on the bus that is not signed, answers 202 before the delivery is durable, or runs anything
// itself: it asks the agent loop for a run whose id follows from the delivery, so that a delivery that comes twice
// starts one.
//
//	POST -> received (202) -> routed | ignored
package webhooks
