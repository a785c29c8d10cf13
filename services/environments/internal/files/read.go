package files

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"unicode/utf8"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/machine"
)

// Bounds of a read, in bytes.
const (
	defaultRead = 64 << 10
	maxRead     = 256 << 10
	maxHashed   = 256 << 20 // of a file whose digest is computed
)

// Content is a file, or a range of it.
type Content struct {
	Path      string `json:"path"`
	Size      int64  `json:"size"`
	Offset    int64  `json:"offset,omitempty"`
	Next      int64  `json:"next_offset,omitempty"` // there is more from here on
	SHA256    string `json:"sha256,omitempty"`      // of the whole file; empty: it is too large
	Unchanged bool   `json:"unchanged,omitempty"`   // it is the version that if_changed names
	Text      string `json:"text,omitempty"`
	Base64    string `json:"base64,omitempty"` // what is not UTF-8
	Mode      string `json:"mode"`
}

func (t *Tree) read(a machine.ReadFileArgs) (any, error) {
	limit := int64(a.Max)
	if limit == 0 {
		limit = defaultRead
	}
	if limit < 1 || limit > maxRead || a.Offset < 0 {
		return nil, problem.New(problem.Invalid, "max_bytes is outside 1 to %d, or offset negative", maxRead)
	}
	f, info, err := t.open(a.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := Content{Path: a.Path, Size: info.Size(), Offset: a.Offset, Mode: info.Mode().Perm().String()}
	if info.Size() <= maxHashed {
		sum := sha256.New()
		if _, err := io.Copy(sum, io.LimitReader(f, maxHashed)); err != nil {
			return nil, t.explain(err, a.Path)
		}
		out.SHA256 = hex.EncodeToString(sum.Sum(nil))
	}
	if a.IfChanged != "" && a.IfChanged == out.SHA256 {
		out.Unchanged = true
		return out, nil
	}
	raw := make([]byte, limit)
	n, err := f.ReadAt(raw, a.Offset)
	if err != nil && err != io.EOF {
		return nil, t.explain(err, a.Path)
	}
	raw = raw[:n]
	more := a.Offset+int64(n) < info.Size()
	if whole := wholeRunes(raw); more && len(whole) > 0 {
		raw = whole // a character is not cut in two
	}
	if more {
		out.Next = a.Offset + int64(len(raw))
	}
	if utf8.Valid(raw) {
		out.Text = string(raw)
	} else {
		out.Base64 = base64.StdEncoding.EncodeToString(raw)
	}
	return out, nil
}

// wholeRunes leaves out a character that was cut off at the end.
func wholeRunes(raw []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(raw); i++ {
		if b := raw[len(raw)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(raw[len(raw)-i:]) {
				return raw[:len(raw)-i]
			}
			return raw
		}
	}
	return raw
}
