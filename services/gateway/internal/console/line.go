package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/execwarden/execwarden/libs/unseen"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
)

// maxShown is how much of an event's data a page shows, in bytes. The API has all of it.
const maxShown = 16 << 10

// line is an event as a timeline shows it.
type line struct {
	ID    string
	Key   string // of the event's aggregate
	At    time.Time
	Kind  string
	Who   string
	Text  string
	Tone  string
	Data  string
	Cut   bool
	Where string // stream and sequence
}

func lineOf(e ask.Event) line {
	l := line{
		ID: fmt.Sprintf("e-%s-%d", e.Stream, e.Seq), At: e.StoredAt, Kind: e.Kind,
		Where: fmt.Sprintf("%s:%d", e.Stream, e.Seq),
	}
	envelope, at, err := schemas.ParseEnvelope(e.Subject, e.Raw)
	if err != nil {
		l.Text, l.Tone = "this event cannot be decoded", bad
		l.Data, l.Cut = cut(string(e.Raw))
		return l
	}
	l.At, l.Who, l.Key = envelope.Time, envelope.Actor, at.Key
	if ev, err := envelope.Decode(); err == nil {
		l.Text, l.Tone = words(ev)
	}
	if envelope.BodyBlob != "" {
		l.Text = "(the body is large and kept apart, as " + envelope.BodyBlob[:min(12, len(envelope.BodyBlob))] + "…)"
	}
	l.Data, l.Cut = cut(pretty(envelope.Data))
	return l
}

func pretty(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return string(raw)
	}
	return unseen.Legible(b.Bytes())
}

func cut(text string) (string, bool) {
	if len(text) <= maxShown {
		return text, false
	}
	return text[:maxShown], true
}
