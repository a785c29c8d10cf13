// Package checkpoint keeps what a volume holds at a moment, and brings it back. A manifest says of each file its path,
// mode, size and SHA-256, and its own hash says what the whole is: what is brought back was compared with it, all of it,
// before anything is replaced.
package checkpoint
