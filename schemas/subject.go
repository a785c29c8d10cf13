package schemas

import (
	"fmt"
	"strings"

	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// subjectRoot starts the subject of every event.
const subjectRoot = "ew.v1."

// Subject is where an event stands on the bus: ew.v1.<tenant>.<noun>.<key>.<verb>[.<route>]. Key is the id of the
// aggregate; for calls it is the run that they belong to.
type Subject struct {
	Tenant id.Tenant
	Noun   string
	Key    string
	Verb   string
	Route  call.Route
}

// SubjectOf makes the subject of an event of kind kind.
func SubjectOf(tenant id.Tenant, kind, key string, route call.Route) Subject {
	noun, verb, _ := strings.Cut(kind, ".")
	return Subject{Tenant: tenant, Noun: noun, Key: key, Verb: verb, Route: route}
}

func (s Subject) String() string {
	text := s.Aggregate() + s.Verb
	if s.Route != "" {
		text += "." + string(s.Route)
	}
	return text
}

// Kind is the kind of the event that stands here.
func (s Subject) Kind() string { return s.Noun + "." + s.Verb }

// Aggregate is the common start of the subjects of the event's aggregate, ending in a dot.
func (s Subject) Aggregate() string {
	return subjectRoot + string(s.Tenant) + "." + s.Noun + "." + s.Key + "."
}

// Filter is the one filter that covers the whole aggregate. An append's expected sequence is always against it: a
// filter that did not cover the published subject would switch the check off without a word.
func (s Subject) Filter() string { return s.Aggregate() + ">" }

// OfRun is the filter for everything that happens in a run: to the run itself, its calls, its scripts.
func OfRun(tenant id.Tenant, run id.Run) string {
	return subjectRoot + string(tenant) + ".*." + string(run) + ".>"
}

// ParseSubject reads a subject. It does not know kinds, so an event of a kind that is newer than this program still
// has its place.
func ParseSubject(text string) (Subject, error) {
	tokens := strings.Split(text, ".")
	if len(tokens) < 6 || len(tokens) > 7 || tokens[0] != "ew" || tokens[1] != "v1" {
		return Subject{}, fmt.Errorf("%.120q is not an event subject", text)
	}
	for _, t := range tokens[2:] {
		if !validToken(t) {
			return Subject{}, fmt.Errorf("%.120q has a token outside [a-z0-9_-]", text)
		}
	}
	tenant, err := id.Parse[id.Tenant](tokens[2])
	if err != nil {
		return Subject{}, err
	}
	s := Subject{Tenant: tenant, Noun: tokens[3], Key: tokens[4], Verb: tokens[5]}
	if len(tokens) == 7 {
		s.Route = call.Route(tokens[6])
	}
	return s, nil
}

func validToken(t string) bool {
	for i := range len(t) {
		c := t[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return t != "" && len(t) <= 80
}
