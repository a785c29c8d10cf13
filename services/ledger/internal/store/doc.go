// Package store is the ledger's Postgres: every event of every stream once, in order, as a leaf of its tenant's
// Merkle tree.
//
// # Authority
//
// The streams are the truth; everything here can be made again by replay, with equal roots. ledger_cursor says how
// far a stream has been taken in. It moves in the transaction that stores the events, so neither a crash nor a
// second writer can store one twice or leave one out:
//
//	lock the cursor -> drop what is known -> COPY leaves and bodies -> heads and runs -> move the cursor -> commit
//
//	crash before the commit    nothing happened; the stream delivers the batch again
//	crash after the commit     the stream delivers it again; the cursor drops it
//
// # Tables
//
// Each table has a migration, and a Go file that holds its queries: cursor, leaf, body, hash, tree, checkpoint, run.
// Leaves and bodies are never updated or deleted, and triggers refuse it. Somebody with the rights of a superuser
// can get around a trigger; Verify finds what they changed.
//
// # Tenants
//
// Whatever is asked for a tenant runs under row-level security as a role that sees that tenant's rows alone.
package store
