package connector

import "time"

// CopyLife is how long a machine may take to copy a volume. What takes longer is given up, and leaves everything as it was.
const CopyLife = 45 * time.Second

// Checkpoint keeps what a volume holds under a number that was never given before.
type Checkpoint struct {
	Volume     string `json:"volume"` // its name
	Generation int    `json:"generation"`
}

// Checkpointed answers Checkpoint.
type Checkpointed struct {
	Manifest string `json:"manifest"` // SHA-256 of the manifest, hex
	Files    int    `json:"files"`
	Bytes    int64  `json:"bytes"`
	Skipped  int    `json:"skipped,omitempty"` // pipes, sockets and devices
	Kept     []int  `json:"kept"`              // the generations that the machine has now
}

// Restore brings a checkpoint back into its volume, if it is the one whose manifest is named.
type Restore struct {
	Volume     string `json:"volume"`
	Generation int    `json:"generation"`
	Manifest   string `json:"manifest"`
}

// Clone makes a volume that holds what another does.
type Clone struct {
	Volume string `json:"volume"`
	To     string `json:"to"`
}

// Copied answers Restore and Clone.
type Copied struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}
