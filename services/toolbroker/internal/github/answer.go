package github

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/google/go-github/v62/github"
)

// What a model is shown at most, in bytes. What is left out is said (github-mcp-server#2347).
const (
	maxAnswer = 96 << 10 // of a whole answer
	maxBody   = 24 << 10 // of the text of one thing that was asked for
	maxLong   = 4 << 10  // of the text of one thing in a thread
	maxShort  = 400      // of the text of one thing in a list
	maxDiff   = 64 << 10
)

// shown is a page of a list.
type shown[T any] struct {
	Items     []T    `json:"items"`
	Total     int    `json:"total_count,omitempty"`
	NextPage  int    `json:"next_page,omitempty"`
	NextAfter string `json:"next_after,omitempty"`
	Truncated bool   `json:"truncated"` // there is more: another page, items left off, or text cut
	LeftOff   int    `json:"left_off,omitempty"`
	Note      string `json:"note,omitempty"`
}

// listed makes a page of what GitHub listed.
func listed[From, To any](list []From, resp *github.Response, shorten func(*cutter, From) To) *shown[To] {
	var c cutter
	out := &shown[To]{Items: make([]To, 0, len(list))}
	for _, one := range list {
		out.Items = append(out.Items, shorten(&c, one))
	}
	if resp != nil {
		out.NextPage = resp.NextPage
		if resp.NextPage == 0 {
			out.NextAfter = resp.After
		}
	}
	out.Truncated = c.cut || out.NextPage != 0 || out.NextAfter != ""
	return out
}

// shrink drops the last part of the page, and says whether anything is left to drop.
func (p *shown[T]) shrink() bool {
	drop := (len(p.Items) + 3) / 4
	if drop == 0 {
		return false
	}
	p.Items = p.Items[:len(p.Items)-drop]
	p.LeftOff += drop
	p.Truncated = true
	p.Note = fmt.Sprintf("the last %d of this page did not fit; ask for the page again with a smaller perPage", p.LeftOff)
	return true
}

// written is an answer as JSON, made smaller until it fits.
func written(answer any) (json.RawMessage, error) {
	list, shrinks := answer.(interface{ shrink() bool })
	for {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false) // a diff is hard enough to read
		if err := enc.Encode(answer); err != nil {
			return nil, err
		}
		if b.Len() <= maxAnswer || !shrinks || !list.shrink() {
			return bytes.TrimSpace(b.Bytes()), nil
		}
	}
}

// cutter shortens texts and remembers whether it had to.
type cutter struct{ cut bool }

// text is the first n bytes of a text, without our markers, which an agent could copy. What is cut is said in the text.
func (c *cutter) text(s string, n int) string {
	if strings.Contains(s, markerStart) { // the pattern is slow on what has none
		s = marked.ReplaceAllString(s, "")
	}
	if len(s) <= n {
		return s
	}
	c.cut = true
	return fmt.Sprintf("%s\n[cut: %d of %d bytes shown]", whole(s[:n]), n, len(s))
}

// whole drops the half of a character at the end of a text that was cut.
func whole(s string) string {
	for range utf8.UTFMax - 1 {
		if r, size := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || size != 1 {
			return s
		}
		s = s[:len(s)-1]
	}
	return s
}

// marker makes the effect of a call recognisable, invisibly to readers.
func marker(effect string) string { return markerStart + effect + " -->" }

const markerStart = "<!-- execwarden:"

// marked finds markers, with the space in front.
var marked = regexp.MustCompile(`\s*` + markerStart + `[A-Za-z0-9_-]+ -->`)
