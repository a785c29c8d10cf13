package connector

import (
	"time"

	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/visit"
)

// VisitAudience is whom the permit of a visit is for: the connector itself. No executor of calls takes one.
const VisitAudience call.Route = "visit"

// Times of a visit.
const (
	VisitAway = 5 * time.Minute // without a word of the person, before it is hung up
	VisitLife = 12 * time.Hour  // the longest
)

// Visit is one that the broker admitted. The permit's digest is of its JSON.
type Visit struct {
	visit.Admitted
	Actor string `json:"actor"`          // who comes
	Term  string `json:"term,omitempty"` // TERM at a terminal
}

// OpenVisit asks a machine to begin a visit, or to go on with it after a cut, with one of its streams. The bytes flow beside:
//
//	ew.visit.v1.to.<tenant>.<environment>.<instance>.<visit>.<stream>   gateway tells
//	ew.visit.v1.from.<tenant>.<environment>.<visit>.<stream>            connector tells
type OpenVisit struct {
	Visit    []byte `json:"visit"` // JSON of a Visit, byte for byte as the permit's digest is of
	Permit   string `json:"permit"`
	Stream   int    `json:"stream"`             // of a preview: 0 holds it open, others are connections
	Received int64  `json:"received,omitempty"` // what the person has of this stream, in bytes
	Rows     uint16 `json:"rows,omitempty"`
	Cols     uint16 `json:"cols,omitempty"`
}

// VisitOpened answers OpenVisit.
type VisitOpened struct {
	Instance string `json:"instance"` // where the stream's bytes go to
}

// VisitOver is a message to a stream: its person may not be there any more, and the visit is hung up.
var VisitOver = []byte{'k'}

// MaxVisitStreams is how many streams a visit has at once.
const MaxVisitStreams = 64

// Streams of pieces from the person, and of what comes back. Gaps are 0.
const (
	VisitInput  byte = 1
	VisitSize   byte = 2 // rows and columns, two bytes each, big endian
	VisitSignal byte = 3 // its name without SIG; HUP leaves

	VisitLeave = "leave" // the last word of a person who leaves a shell; another is the end of its input

	VisitStdout byte = 1
	VisitStderr byte = 2
)
