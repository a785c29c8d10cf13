package apipackage

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// Answer is what a call gives: the API's own answer, and what it said beside it.
type Answer struct {
	Status int `json:"status"`
	// Body is the answer when it is JSON, Text when it is another text, and Base64 when it is neither.
	Body        json.RawMessage `json:"body,omitempty"`
	Text        string          `json:"text,omitempty"`
	Base64      string          `json:"base64,omitempty"`
	ContentType string          `json:"content_type,omitempty"` // unless it is JSON
	// Truncated says that Text is only the beginning, of Bytes in all where the API said how many.
	Truncated bool   `json:"truncated,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
	NextPage  string `json:"next_page,omitempty"` // the path and query of the next page
	Location  string `json:"location,omitempty"`
	// RetryAfter is when the API wants to be asked again, in its own words: seconds or a date.
	RetryAfter string `json:"retry_after,omitempty"`
	Message    string `json:"message,omitempty"` // ours, where something has to be said
}

const (
	room       = 4 << 10                             // for what is said beside the body
	maxBody    = upstream.MaxResult - room           // of an answer that is passed on whole
	maxPreview = 32 << 10                            // of one that is not
	maxBinary  = (upstream.MaxResult - room) / 4 * 3 // what base64 makes of it still fits
	maxExcerpt = 8 << 10                             // of an error's
)

// receive reads a response.
func receive(resp *http.Response, c credential) (Answer, error) {
	a := Answer{
		Status:     resp.StatusCode,
		NextPage:   nextPage(resp.Header.Values("Link")),
		RetryAfter: clip(resp.Header.Get("Retry-After"), 60),
		Location:   clip(c.hide(resp.Header.Get("Location")), 1000),
	}
	limit := maxBody
	if resp.StatusCode >= 300 {
		limit = maxExcerpt
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	cut := len(raw) > limit
	if problem.CodeOf(err) == problem.TooLarge {
		cut, err = true, nil // the way out has a limit too
	}
	raw = raw[:min(len(raw), limit)]
	media := resp.Header.Get("Content-Type")
	a.fill(c.hide(string(raw)), media, cut || err != nil, resp.StatusCode >= 300)
	if a.Truncated {
		a.Bytes = max(resp.ContentLength, 0)
		a.Message = "only the beginning of the answer is here, since all of it would be too large; ask for less, by a filter or a smaller page"
		if resp.StatusCode >= 300 {
			a.Message = ""
		}
	}
	a.NextPage = c.hide(a.NextPage)
	return a, err
}

// fill puts the body where it belongs.
func (a *Answer) fill(body, media string, cut, excerpt bool) {
	base, _, err := mime.ParseMediaType(media)
	isJSON := err == nil && (base == "application/json" || strings.HasSuffix(base, "+json"))
	if !isJSON {
		a.ContentType = clip(media, 200)
	}
	isText := utf8.ValidString(wholeRunes(body)) && strings.IndexByte(body, 0) < 0
	switch {
	case body == "":
		a.ContentType = ""
	case !cut && (isJSON || media == "") && json.Valid([]byte(body)):
		a.Body = json.RawMessage(body)
	case isText || excerpt:
		a.preview(body, cut)
	case !cut && len(body) <= maxBinary:
		a.Base64 = base64.StdEncoding.EncodeToString([]byte(body))
	default:
		a.Truncated = true // bytes without their end are of no use to anyone
	}
}

// preview gives a text, or its beginning.
func (a *Answer) preview(text string, cut bool) {
	// Written as JSON a text grows: by quotes and line breaks a little, by control characters sixfold.
	raw, err := json.Marshal(text)
	if a.Truncated = cut || err != nil || len(raw) > maxBody; a.Truncated {
		text = wholeRunes(text[:min(len(text), maxPreview)])
	}
	a.Text = strings.ToValidUTF8(text, "\ufffd")
}

// wholeRunes takes away what is left of a character that was cut through at the end.
func wholeRunes(s string) string {
	for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
		if c := s[len(s)-i]; utf8.RuneStart(c) {
			if !utf8.FullRuneInString(s[len(s)-i:]) {
				return s[:len(s)-i]
			}
			break
		}
	}
	return s
}

// link is one link of a Link header and what is said of it.
var link = regexp.MustCompile(`<([^<>]+)>([^<]*)`)

// nextPage finds the next page in Link headers (RFC 8288). Only its path and query are given: the place is known, and is
// not the header's to say.
func nextPage(links []string) string {
	for _, h := range links {
		for _, m := range link.FindAllStringSubmatch(h, 50) {
			for param := range strings.SplitSeq(strings.TrimRight(m[2], ", "), ";") {
				name, v, _ := strings.Cut(strings.TrimSpace(param), "=")
				if !strings.EqualFold(strings.TrimSpace(name), "rel") || !hasWord(strings.Trim(strings.TrimSpace(v), `"`), "next") {
					continue
				}
				if u, err := url.Parse(m[1]); err == nil {
					return clip((&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}).String(), 2000)
				}
			}
		}
	}
	return ""
}

func hasWord(list, word string) bool {
	for w := range strings.FieldsSeq(list) {
		if strings.EqualFold(w, word) {
			return true
		}
	}
	return false
}

// result writes an answer as what a tool answered.
func (a Answer) result() (upstream.Result, error) {
	raw, err := json.Marshal(a)
	if err != nil {
		return upstream.Result{}, problem.Wrap(err, problem.Internal, "the API's answer cannot be written")
	}
	if len(raw) > upstream.MaxResult { // escaping made it grow
		a.Body, a.Base64, a.Truncated = nil, "", true
		a.Message = "the answer is too large to pass on; ask for less, by a filter or a smaller page"
		if raw, err = json.Marshal(a); err != nil || len(raw) > upstream.MaxResult {
			return upstream.Result{}, errors.Join(err, problem.New(problem.TooLarge, "the API's answer is too large"))
		}
	}
	return upstream.Result{Content: raw, ToolError: a.Status >= 300}, nil
}
