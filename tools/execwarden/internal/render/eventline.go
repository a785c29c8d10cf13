package render

import (
	"fmt"
	"time"

	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// maxWords is how much of an event's text stands in its line, in characters.
const maxWords = 160

// Event writes one of many events, at once: a line for people, the whole event for programs.
func (p *Printer) Event(e client.Event) error {
	switch p.Format {
	case JSON, JSONL:
		return p.JSONLine(e)
	case YAML:
		if err := p.Line("---"); err != nil {
			return err
		}
		return p.Value(e)
	}
	return p.EventLine(e)
}

// EventLine writes an event in one line: when, where, what, who, and in a few words.
func (p *Printer) EventLine(e client.Event) error {
	at, who, text, tone := e.StoredAt, "-", "", Plain
	switch envelope, err := e.Envelope(); {
	case err != nil:
		text, tone = "this event cannot be decoded: "+err.Error(), Bad
	default:
		at, who = envelope.Time, envelope.Actor
		text, tone = words(envelope)
	}
	most := maxWords
	if p.Format == Wide {
		most = 10 * maxWords
	}
	return p.Line("%s  %s  %s  %s  %s",
		p.paint(Faint, Clock(at)), p.paint(Faint, fmt.Sprintf("%s:%d", Inline(e.Stream), e.Seq)),
		Inline(e.Kind), Inline(who), p.paint(tone, Short(text, most)))
}

// Clock is a time as a line has it, Stamp as a table has it. All times are UTC, as everything that is recorded.
func Clock(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Stamp is a time to the second; empty when there is none.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
