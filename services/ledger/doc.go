// Package ledger is the activity ledger: the audit store, and the proof that it is whole.
//
// Hears: every message on EW_CONTROL and EW_ACTIVITY, decodable or not, from where its database stands.
//
// Says: ledger.checkpointed.
//
// Owns: the leaves, trees and checkpoints of each tenant and stream, and the read models that lists and tails are
// answered from.
//
// Never: skips a sequence, changes or deletes what it recorded, or decides anything about a run. What runs depends on
// waits for no ledger: without Postgres they go on, and it catches up.
//
//	stream --batch--> leaves, bodies, trees (one transaction) --> signed checkpoint --> EW_PROOFS
package ledger
