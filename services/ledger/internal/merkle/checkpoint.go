package merkle

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/execwarden/execwarden/libs/problem"
)

// Checkpoint is the head of one tree: what a signature vouches for.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   Hash
}

// Origin names a tree for the world: no two trees share one.
func Origin(deployment, tenant, stream string) string {
	return deployment + "/ledger/" + tenant + "/" + stream
}

// Text is the checkpoint in the tlog-checkpoint format: the part of a note that is signed.
func (c Checkpoint) Text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
}

// ParseCheckpoint reads what Text wrote. Extension lines after the root are allowed, as the format says, and carry
// no meaning here. Only the one canonical spelling of size and root is accepted. The code of its errors is
// problem.Invalid.
func ParseCheckpoint(text string) (Checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 || lines[len(lines)-1] != "" || lines[0] == "" {
		return Checkpoint{}, problem.New(problem.Invalid, "a checkpoint is an origin, a size and a root, a line each")
	}
	for _, extension := range lines[3 : len(lines)-1] {
		if extension == "" {
			return Checkpoint{}, problem.New(problem.Invalid, "a checkpoint has no empty lines")
		}
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[1] {
		return Checkpoint{}, problem.New(problem.Invalid, "the checkpoint's size is no number")
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != tlog.HashSize || len(lines[2]) != base64.StdEncoding.EncodedLen(tlog.HashSize) {
		return Checkpoint{}, problem.New(problem.Invalid, "the checkpoint's root is no hash")
	}
	return Checkpoint{Origin: lines[0], Size: size, Root: Hash(root)}, nil
}

// originOf is the first line of a note, before anything is verified.
func originOf(signed []byte) string {
	first, _, _ := bytes.Cut(signed, []byte("\n"))
	return string(first)
}

// StreamOf tells whether an unverified note claims to be of a tree whose origin begins with prefix, and of which
// stream. Open with the whole origin decides whether the claim is true.
func StreamOf(prefix string, signed []byte) (stream string, ok bool) {
	return strings.CutPrefix(originOf(signed), prefix)
}
