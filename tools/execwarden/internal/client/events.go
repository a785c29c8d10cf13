package client

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/execwarden/execwarden/schemas"
)

// Event is a recorded event: its envelope's JSON, or its bytes when they are none.
type Event struct {
	Stream   string          `json:"stream"`
	Seq      uint64          `json:"seq"`
	Subject  string          `json:"subject"`
	Kind     string          `json:"kind"`
	StoredAt time.Time       `json:"stored_at"`
	Event    json.RawMessage `json:"event,omitempty"`
	Raw      []byte          `json:"raw,omitempty"`
}

// Envelope reads the event. It fails for what no program could have meant as an event of ours.
func (e Event) Envelope() (schemas.Envelope, error) {
	raw := []byte(e.Event)
	if len(raw) == 0 {
		raw = e.Raw
	}
	envelope, _, err := schemas.ParseEnvelope(e.Subject, raw)
	return envelope, err
}

// EventPage is a page of events, and the place to go on from.
type EventPage struct {
	Events []Event `json:"events"`
	Next   Cursor  `json:"next"`
	More   bool    `json:"more"`
}

// Filter narrows events. Empty fields let everything through.
type Filter struct {
	Run   string
	Kind  string // with '*' for any characters
	Actor string
}

func (f Filter) query(after Cursor) url.Values {
	query := url.Values{"after": {after.String()}}
	for name, value := range map[string]string{"run": f.Run, "kind": f.Kind, "actor": f.Actor} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// Events gives a page of recorded events.
func (c *Client) Events(ctx context.Context, f Filter, after Cursor) (EventPage, error) {
	return get[EventPage](ctx, c, "/v1/events", f.query(after))
}
