package ask

import (
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/visit"
)

// AdmitVisit asks whether a member may come onto a machine. The volume is named, or found by the session that it is attached to.
type AdmitVisit struct {
	Way         visit.Way      `json:"way"`
	Environment id.Environment `json:"environment"`
	Volume      string         `json:"volume,omitempty"` // its name; empty, and no session: "main"
	Session     id.Session     `json:"session,omitempty"`
	Argv        []string       `json:"argv,omitempty"`
	Terminal    bool           `json:"terminal,omitempty"`
	Term        string         `json:"term,omitempty"`
	Port        int            `json:"port,omitempty"`
}

// AdmittedVisit answers it: with what a machine is shown.
type AdmittedVisit struct {
	Visit  id.Visit `json:"visit"`
	Spec   []byte   `json:"spec"` // JSON of a connector.Visit
	Permit string   `json:"permit"`
}

// OpenVisit asks for a stream of a visit. Answered with where its bytes go.
type OpenVisit struct {
	Environment id.Environment      `json:"environment"`
	Open        connector.OpenVisit `json:"open"`
}

// OpenedVisit answers it.
type OpenedVisit struct {
	Visit    id.Visit `json:"visit"`
	Instance string   `json:"instance"`
}
