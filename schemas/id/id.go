// Package id holds the typed identities of ExecWarden. An id is its kind's prefix, an underscore, and either a
// UUIDv7 (RFC 9562) in hex, a name that a person chose, or a digest that makes the same thing have the same id
// however often it is derived. Every id is one subject token: [a-z0-9_-].
package id

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// MaxNameLength is the longest name that a person may give to a thing, in bytes.
const MaxNameLength = 48

// ID is satisfied by the id types of this package only.
type ID interface {
	~string
	prefix() string
}

// The kinds of id.
type (
	Tenant       string
	Member       string
	Agent        string
	Session      string
	Run          string
	Call         string
	Connection   string
	Grant        string
	Approval     string
	Environment  string
	Trigger      string
	Hook         string
	Delivery     string
	Key          string
	Token        string
	Login        string
	Event        string
	Target       string
	Notice       string
	Volume       string
	Attachment   string
	Conversation string
	Client       string
	Visit        string
)

func (Tenant) prefix() string       { return "tnt" }
func (Member) prefix() string       { return "mem" }
func (Agent) prefix() string        { return "agt" }
func (Session) prefix() string      { return "ses" }
func (Run) prefix() string          { return "run" }
func (Call) prefix() string         { return "call" }
func (Connection) prefix() string   { return "con" }
func (Grant) prefix() string        { return "grt" }
func (Approval) prefix() string     { return "apr" }
func (Environment) prefix() string  { return "env" }
func (Trigger) prefix() string      { return "trg" }
func (Hook) prefix() string         { return "hook" }
func (Delivery) prefix() string     { return "dlv" }
func (Key) prefix() string          { return "key" }
func (Token) prefix() string        { return "tok" }
func (Login) prefix() string        { return "lgn" }
func (Event) prefix() string        { return "evt" }
func (Target) prefix() string       { return "tgt" }
func (Notice) prefix() string       { return "ntc" }
func (Volume) prefix() string       { return "vol" }
func (Attachment) prefix() string   { return "att" }
func (Visit) prefix() string        { return "vis" }
func (Conversation) prefix() string { return "mcp" }
func (Client) prefix() string       { return "cli" }

// ParseRun checks text from outside that names what calls are of: a run, or a conversation in its place.
func ParseRun(text string) (Run, error) {
	if r, err := Parse[Run](text); err == nil {
		return r, nil
	}
	c, err := Parse[Conversation](text)
	if err != nil {
		return "", fmt.Errorf("%.80q is not an id that starts with run_ or mcp_", text)
	}
	return c.Run(), nil
}

// Run is what the calls of a conversation are said under: where there is no run, it takes its place.
func (c Conversation) Run() Run { return Run(c) }

// New makes a fresh id that sorts by time of creation.
func New[T ID]() T {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // crypto/rand.Read never fails (it ends the program instead)
	ms := uint64(time.Now().UnixMilli())
	binary.BigEndian.PutUint16(b[:2], uint16(ms>>32))
	binary.BigEndian.PutUint32(b[2:6], uint32(ms))
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	return join[T](hex.EncodeToString(b[:]))
}

// Derive makes the id that these parts always have. It is how a retry, a redelivery and a recovery after a crash
// speak of the same run, call or event.
func Derive[T ID](parts ...string) T {
	h := sha256.New()
	for _, p := range parts {
		_ = binary.Write(h, binary.BigEndian, uint32(len(p))) // a hash never fails to write
		h.Write([]byte(p))
	}
	sum := h.Sum(nil)[:16]
	sum[6] = sum[6]&0x0f | 0x80 // version 8: a layout of our own
	sum[8] = sum[8]&0x3f | 0x80
	return join[T](hex.EncodeToString(sum))
}

// Named makes the id of a thing that a person named.
func Named[T ID](name string) (T, error) {
	if !ValidName(name) {
		return "", fmt.Errorf("name %.60q: use 1 to %d of a-z, 0-9 and '-', starting with a letter or digit", name, MaxNameLength)
	}
	return join[T](name), nil
}

// Parse checks text from outside.
func Parse[T ID](text string) (T, error) {
	var zero T
	name, ok := strings.CutPrefix(text, zero.prefix()+"_")
	if !ok || !ValidName(name) {
		return "", fmt.Errorf("%.80q is not an id that starts with %s_", text, zero.prefix())
	}
	return T(text), nil
}

// Name is the part after the prefix.
func Name[T ID](t T) string { return strings.TrimPrefix(string(t), t.prefix()+"_") }

// ValidName says whether name may follow a prefix.
func ValidName(name string) bool {
	if name == "" || len(name) > MaxNameLength || name[0] == '-' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

func join[T ID](name string) T {
	var zero T
	return T(zero.prefix() + "_" + name)
}
