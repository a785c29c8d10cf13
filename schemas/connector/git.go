package connector

import "github.com/execwarden/execwarden/schemas/id"

// What a connector asks the broker for while a machine's git tool runs. Each request that git makes there is opened, and
// then carried in pieces that are asked for and answered one at a time, so that no more than a few are anywhere at once:
//
//	ew.git.v1.<tenant>.<environment>.open           GitOpen, answered GitOpened by any broker
//	ew.git.v1.<tenant>.<environment>.<broker>.put   a piece of the request's body, answered when it was taken
//	ew.git.v1.<tenant>.<environment>.<broker>.get   answered with a piece of the response's body, which may be empty
//	ew.git.v1.<tenant>.<environment>.<broker>.close nobody wants the rest

// GitOpen opens one request of git's smart HTTP. It names no repository: that is the call's.
type GitOpen struct {
	Attachment id.Attachment `json:"attachment"`
	Epoch      int           `json:"epoch"`
	Run        id.Run        `json:"run"`
	Call       id.Call       `json:"call"`
	Requested  uint64        `json:"requested_seq"`
	Service    string        `json:"service"`  // git-upload-pack or git-receive-pack
	Refs       bool          `json:"refs"`     // asks what is there (GET info/refs), and has no body
	Protocol   string        `json:"protocol"` // of header Git-Protocol
	Gzip       bool          `json:"gzip"`     // the body is compressed
}

// GitOpened answers GitOpen.
type GitOpened struct {
	Broker string `json:"broker"`
	Stream string `json:"stream"`
}

// MaxPiece is the longest piece of a body, in bytes.
const MaxPiece = 512 << 10

// Headers of pieces. Their data are the bytes.
const (
	HeaderGit       = "Ew-Git"      // the stream
	HeaderGitSeq    = "Ew-Git-Seq"  // counts the pieces of a direction from 1: one that is asked for again is the same
	HeaderGitLast   = "Ew-Git-Last" // after this one there is none
	HeaderGitStatus = "Ew-Git-Status"
	HeaderGitType   = "Ew-Git-Type"
	HeaderGitCode   = "Ew-Git-Code" // of a problem, with the message as data
)
