// Package connector holds what the environment registry and a connector on a customer's machine say to each other, and
// the event of it that lasts.
//
//	ew.machine.v1.<tenant>.<environment>.hello             connector asks, registry answers Leases
//	ew.machine.v1.<tenant>.<environment>.beat              connector tells, every Life.Beat
//	ew.env.v1.<tenant>.<environment>.<instance>.order      registry asks, connector answers Answer
//	ew.env.v1.<tenant>.<environment>.<instance>.lease      registry asks, connector answers Leased
//	ew.env.v1.<tenant>.<environment>.<instance>.cancel     registry asks, connector answers Answer
//	ew.env.v1.<tenant>.<environment>.<instance>.end        registry asks, connector answers Ended
//	ew.env.v1.<tenant>.<environment>.<instance>.checkpoint registry asks, connector answers Checkpointed
//	ew.env.v1.<tenant>.<environment>.<instance>.restore    registry asks, connector answers Copied
//	ew.env.v1.<tenant>.<environment>.<instance>.clone      registry asks, connector answers Copied
//	ew.machine.v1.<tenant>.<environment>.visited           connector tells that a visit ended, registry answers once it is on record
//	ew.env.v1.<tenant>.<environment>.<instance>.visit      registry asks, connector answers VisitOpened
//	ew.env.v1.<tenant>.<environment>.<instance>.fence      registry tells: a newer connector is there
//	ew.out.v1.<tenant>.<environment>.<call>                connector stores output, in EW_OUTPUT
//	ew.out.v1.<tenant>._.<call>                            registry stores whose output counts, in EW_OUTPUT
package connector

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/key"
)

// Welcomed is the newest life of an environment's connector: an older one is answered no more. It says what the
// customer's machine exposes, as the machine tells it.
type Welcomed struct {
	Environment id.Environment       `json:"environment"`
	Instance    string               `json:"instance"` // of the connector's process
	Store       string               `json:"store"`    // of its receipts: another one has forgotten what was begun
	Version     string               `json:"version"`
	Manifest    environment.Manifest `json:"manifest"`
}

// Kind implements schemas.Event.
func (Welcomed) Kind() string { return "connector.welcomed" }

// Life is how long a lease holds after it was last renewed: after that nothing new begins on the machine. The other times of
// the talk follow from it.
type Life time.Duration

// Bounds of a Life.
const (
	DefaultLife = Life(60 * time.Second)
	MinLife     = Life(3 * time.Second)
	MaxLife     = Life(10 * time.Minute)
)

// Duration is the life itself.
func (l Life) Duration() time.Duration { return time.Duration(l) }

// Beat is how often a connector tells that it works.
func (l Life) Beat() time.Duration { return time.Duration(l / 6) }

// Absent is how long a connector may be silent before it counts as gone.
func (l Life) Absent() time.Duration { return time.Duration(l / 2) }

// Renew is how often leases are renewed.
func (l Life) Renew() time.Duration { return time.Duration(l / 3) }

// Or is the life that a registry named, where it is one; else the default: an older registry names none.
func (l Life) Or() Life {
	if l < MinLife || l > MaxLife {
		return DefaultLife
	}
	return l
}

// Times of the talk.
const (
	CancelGrace = 5 * time.Second  // between asking what runs to end and killing it
	PassLife    = 15 * time.Minute // of what a connector is let onto the bus with
)

// MaxMessage is the longest message of the talk, in bytes. Larger files go in pieces.
const MaxMessage = 768 << 10

// Enrol asks for an identity. It goes over HTTPS, before the machine may speak on the bus.
type Enrol struct {
	Token string `json:"token"`
	NKey  string `json:"nkey"`  // the public half
	Proof []byte `json:"proof"` // Ed25519 over EnrolText, so that nobody enrols a key that is not theirs
}

// EnrolText is what Proof signs.
func EnrolText(token, nkey string) []byte { return []byte("execwarden enrol\n" + token + "\n" + nkey) }

// Identity is what a machine keeps of its enrolment. Root is pinned: permits of another deployment are worth nothing.
type Identity struct {
	Tenant      id.Tenant          `json:"tenant"`
	Environment id.Environment     `json:"environment"`
	Driver      environment.Driver `json:"driver"`
	Root        []byte             `json:"root"` // the deployment's public root key, Ed25519
}

// ClientName starts the name of a connector's connection; the rest names its life.
const ClientName = "connector/"

// HelloText is what the proof of a Hello signs.
func HelloText(h Hello) []byte {
	return []byte("execwarden hello\n" + h.Instance + "\n" + h.Store)
}

// Hello says that a connector is there.
type Hello struct {
	Instance string               `json:"instance"`
	Store    string               `json:"store"`
	Version  string               `json:"version"`
	Manifest environment.Manifest `json:"manifest"`
	// Proof is the NKey's signature of HelloText: whoever was replaced, and is on the bus still, cannot make it.
	Proof []byte `json:"proof"`
	// Again says that the registry welcomed this instance before: it comes back, and does not take another's place.
	Again bool `json:"again,omitempty"`
}

// Bounds of a Hello.
const (
	maxToken = 64 // bytes of an instance, a store, a version
	maxList  = 64
	maxPath  = 4 << 10
)

// Check says what is wrong with a Hello, which a customer's machine made.
func (h Hello) Check() error {
	if !token.MatchString(h.Instance) || !token.MatchString(h.Store) || len(h.Version) > maxToken {
		return errors.New("instance, store and version are short words of a-z, 0-9 and '-'")
	}
	m := h.Manifest
	if len(m.Images) > maxList || slices.ContainsFunc(m.Images, func(i string) bool { return len(i) > maxPath }) {
		return errors.New("the manifest is too large")
	}
	if len(m.Preview) > maxList || slices.ContainsFunc(m.Preview, func(p string) bool { return len(p) > maxToken }) {
		return errors.New("the manifest is too large")
	}
	if len(m.Roots) > maxList || len(m.Programs) > maxList || len(m.PrivateHTTP) > maxList || len(m.Targets) > maxList || len(m.Policy) > maxToken || len(m.Platform) > maxToken || len(m.Network) > maxToken {
		return errors.New("the manifest is too large")
	}
	for _, r := range m.Roots {
		if len(r.Path) > maxPath {
			return errors.New("a root's path is too long")
		}
	}
	for _, p := range m.Programs {
		if len(p) > maxPath {
			return errors.New("a program's path is too long")
		}
	}
	for _, t := range slices.Concat(m.PrivateHTTP, m.Targets) {
		if len(t) > maxPath {
			return errors.New("a target is too long")
		}
	}
	return nil
}

var token = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// Reply is an answer, or the problem in its place.
type Reply[T any] struct {
	Body    T      `json:"body"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// Beat says that a connector really works: it ran a command and moved a file just now, or Fault says what failed.
type Beat struct {
	Instance string `json:"instance"`
	Execs    int    `json:"execs"` // that run
	Fault    string `json:"fault,omitempty"`
}

// Lease is what a machine knows of an attachment. It holds for a Life from when it was heard, by a clock that nobody sets.
type Lease struct {
	Attachment id.Attachment `json:"attachment"`
	Volume     string        `json:"volume"` // its name
	Epoch      int           `json:"epoch"`
	Draining   bool          `json:"draining,omitempty"`
}

// Leases answers a Hello, and from then on renews what is attached. A lease that it does not name is not renewed, and lapses.
// Now lets the machine judge permits by the registry's clock and not by its own.
type Leases struct {
	Now    time.Time       `json:"now"`
	Keys   []key.Published `json:"keys"`
	Leases []Lease         `json:"leases"`
	Life   Life            `json:"life,omitempty"` // of each; nanoseconds
}

// Leased answers Leases.
type Leased struct {
	Faults map[id.Attachment]string `json:"faults,omitempty"` // volumes that could not be made ready
}

// End ends an attachment. What runs is ended within Grace, then killed.
type End struct {
	Attachment id.Attachment `json:"attachment"`
	Epoch      int           `json:"epoch"`
	Grace      time.Duration `json:"grace"`
	Revoked    bool          `json:"revoked"`
}

// Ended answers End.
type Ended struct {
	Killed    int `json:"killed"`
	Survivors int `json:"survivors"`
}

// Order is one admitted call for a machine. The same order, asked again, gives the same answer and acts once: its
// receipt is kept under its call.
type Order struct {
	Attachment id.Attachment `json:"attachment"`
	Epoch      int           `json:"epoch"`
	Volume     string        `json:"volume"`
	Run        id.Run        `json:"run"`
	Call       id.Call       `json:"call"`
	Agent      id.Agent      `json:"agent"`
	Tool       string        `json:"tool"` // machine.<name>
	Requested  uint64        `json:"requested_seq"`
	Args       []byte        `json:"args"` // JSON, byte for byte as the permit's digest is of
	Permit     string        `json:"permit"`
	// AdmittedAt tells a machine whose receipts are younger that it cannot know whether the order was begun.
	AdmittedAt time.Time `json:"admitted_at"`
	// Only asks what became of the order, and begins nothing.
	Only bool `json:"only,omitempty"`
	// Patience is how long the connector may wait before it answers that the order is under way.
	Patience time.Duration `json:"patience"`
}

// Cancel ends what a call began.
type Cancel struct {
	Call  id.Call       `json:"call"`
	Grace time.Duration `json:"grace"`
}

// State is how far an order is.
type State string

// The states of an order.
const (
	UnderWay State = "under_way" // ask again
	Done     State = "done"
	Refused  State = "refused"   // nothing was begun, and nothing will be under this order
	NotBegun State = "not_begun" // Only: there is no receipt
	Unknown  State = "unknown"   // it was begun, and what came of it is lost
)

// Answer answers an Order.
type Answer struct {
	State     State           `json:"state"`
	Result    json.RawMessage `json:"result,omitempty"` // as schemas/machine has it
	ToolError bool            `json:"tool_error,omitempty"`
	Code      string          `json:"code,omitempty"` // of a problem, when refused or unknown
	Message   string          `json:"message,omitempty"`
}

// Headers of a message of output. Its data are the bytes, as they were printed; of the end, the exec as JSON.
const (
	HeaderStream = "Ew-Stream" // stdout, stderr, gap, end
	HeaderOffset = "Ew-Offset" // of the first byte
	HeaderLost   = "Ew-Lost"   // bytes of a gap
	StreamEnd    = "end"
)
