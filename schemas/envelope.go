package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/execwarden/execwarden/schemas/id"
)

// MaxEnvelope is the largest event on the bus, in bytes. A larger body goes to the blob store before.
const MaxEnvelope = 256 << 10

// Envelope is a CloudEvents 1.0 event in structured JSON mode. The producer writes it once; those bytes are what is
// stored, hashed and exported.
type Envelope struct {
	SpecVersion string    `json:"specversion"`
	ID          id.Event  `json:"id"`
	Source      string    `json:"source"`
	Type        string    `json:"type"`
	Subject     string    `json:"subject"`
	Time        time.Time `json:"time"`
	ContentType string    `json:"datacontenttype"`

	Tenant      id.Tenant `json:"tenant"`
	Actor       string    `json:"actor"`
	Run         id.Run    `json:"run,omitempty"`
	Causation   id.Event  `json:"causation,omitempty"`
	Correlation string    `json:"correlation,omitempty"`
	BodyBlob    string    `json:"bodyblob,omitempty"` // SHA-256 of data.body when it is in the blob store

	Data json.RawMessage `json:"data"`
}

// TypeOf is the CloudEvents type of a kind and version: ew.call.requested.v1.
func TypeOf(e Entry) string { return fmt.Sprintf("ew.%s.v%d", e.Kind, e.Version) }

// Kind is the kind in the envelope's type, "" when the type is not ours.
func (e Envelope) Kind() string {
	kind, ok := strings.CutPrefix(e.Type, "ew.")
	if !ok {
		return ""
	}
	if i := strings.LastIndex(kind, ".v"); i >= 0 {
		return kind[:i]
	}
	return ""
}

// ParseEnvelope reads an event from the bus and checks that it is what its subject says. Attributes that it does not
// know are kept in the bytes and ignored here.
func ParseEnvelope(subject string, raw []byte) (Envelope, Subject, error) {
	at, err := ParseSubject(subject)
	if err != nil {
		return Envelope{}, Subject{}, err
	}
	if len(raw) > MaxEnvelope {
		return Envelope{}, at, fmt.Errorf("an event of %d bytes is over %d", len(raw), MaxEnvelope)
	}
	var e Envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return Envelope{}, at, fmt.Errorf("the event is not one CloudEvents JSON object: %w", err)
	}
	if _, err := id.Parse[id.Event](string(e.ID)); err != nil {
		return Envelope{}, at, err
	}
	switch {
	case e.SpecVersion != "1.0":
		return Envelope{}, at, fmt.Errorf("specversion %.20q is not 1.0", e.SpecVersion)
	case e.Tenant != at.Tenant:
		return Envelope{}, at, fmt.Errorf("the event of tenant %.60q stands on a subject of %s", e.Tenant, at.Tenant)
	case e.Kind() != at.Kind():
		return Envelope{}, at, fmt.Errorf("the event of type %.60q stands on a subject of %s", e.Type, at.Kind())
	case len(e.Data) == 0:
		return Envelope{}, at, errors.New("the event has no data")
	}
	return e, at, nil
}

// ErrUnknownKind is returned by Decode for a kind that this program does not know. Such an event is kept by whoever
// keeps events and passed over by whoever acts on them.
var ErrUnknownKind = errors.New("unknown kind of event")

// Decode reads the data as the type that the catalogue has for the kind. Fields that it does not know are ignored.
func (e Envelope) Decode() (Event, error) {
	entry, ok := Find(e.Kind())
	if !ok || TypeOf(entry) != e.Type {
		return nil, fmt.Errorf("%w: %s", ErrUnknownKind, e.Type)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(e.Data, " \t\r\n"), []byte("{")) {
		return nil, fmt.Errorf("data of %s is not an object", e.Type) // null would pass for an event of zero values
	}
	v := reflect.New(entry.Type)
	if err := json.Unmarshal(e.Data, v.Interface()); err != nil {
		return nil, fmt.Errorf("data of %s: %w", e.Type, err)
	}
	return v.Elem().Interface().(Event), nil
}
