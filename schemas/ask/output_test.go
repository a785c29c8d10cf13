package ask

import "testing"

// A reader has every byte once, whatever is stored twice and however it is cut.
func TestFrom(t *testing.T) {
	text := "0123456789"
	at, got, lost := int64(0), "", int64(0)
	for _, p := range []OutputPiece{
		{Offset: 0, Data: []byte(text[:4])}, {Offset: 0, Data: []byte(text[:6])}, {Offset: 2, Data: []byte(text[2:3])}, {Offset: 6, Data: []byte(text[6:])},
		{Offset: 0, Data: []byte(text)}, {Offset: 10, Lost: 5}, {Offset: 8, Lost: 9}, {Offset: 17, Data: []byte("x")},
	} {
		p, at = p.From(at)
		got, lost = got+string(p.Data), lost+p.Lost
	}
	if got != text+"x" || lost != 7 || at != 18 {
		t.Errorf("%q, %d lost, at %d", got, lost, at)
	}
}
