// Package merkle is the pure heart of the ledger: append-only Merkle trees as in RFC 6962, and their signed heads.
//
// A leaf is the hash of an event's bytes exactly as they were stored. A Frontier grows a tree while it remembers no
// more than one hash for each power of two. A Checkpoint is a tree's head (origin, size, root) in the C2SP
// tlog-checkpoint format, signed as a C2SP note with Ed25519, so that other people's tools can check it. Proofs say
// that a leaf is in a tree, and that a tree is a prefix of a later one.
//
// Nothing here reads or writes anything: what is stored, and where, is its callers' business.
package merkle
