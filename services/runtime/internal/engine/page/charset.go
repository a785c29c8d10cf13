package page

import (
	"bytes"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

var mark = []byte("\uFEFF")

// Text decodes a body by the charset of its content type, and as UTF-8 without one. What is not valid becomes U+FFFD.
func Text(body []byte, contentType string) (string, error) {
	if rest, ok := bytes.CutPrefix(body, mark); ok {
		return strings.ToValidUTF8(string(rest), "\uFFFD"), nil
	}
	_, params, _ := mime.ParseMediaType(contentType) // one that cannot be read names no charset
	return decode(body, params["charset"])
}

func decode(body []byte, label string) (string, error) {
	if label == "" || strings.EqualFold(label, "utf-8") || strings.EqualFold(label, "utf8") {
		return strings.ToValidUTF8(string(body), "\uFFFD"), nil
	}
	encoding, name := charset.Lookup(label)
	if encoding == nil || name == "replacement" {
		return "", fmt.Errorf("the charset %.40q is not known; read the response with bytes()", label)
	}
	out, err := encoding.NewDecoder().Bytes(body)
	if err != nil {
		return "", fmt.Errorf("the response is not in its charset %.40q", label)
	}
	return strings.ToValidUTF8(string(out), "\uFFFD"), nil
}

// source decodes HTML, whose own words about its charset count where the content type has none.
func source(body []byte, contentType string) (string, error) {
	_, params, _ := mime.ParseMediaType(contentType)
	if params["charset"] != "" || bytes.HasPrefix(body, mark) {
		return Text(body, contentType)
	}
	_, name, certain := charset.DetermineEncoding(body[:min(len(body), 1024)], contentType)
	if !certain && (name == "windows-1252" || utf8.Valid(body)) {
		name = "" // a guess for want of a word; most of the web is UTF-8
	}
	return decode(body, name)
}

// kind is how a body is read.
type kind int

const (
	markup kind = iota
	readable
	binary
)

// kindOf goes by the content type, and by the first byte where there is none.
func kindOf(body []byte, contentType string) kind {
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil && media == "":
		if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n\uFEFF"), []byte("<")) {
			return markup
		}
		return readable
	case media == "text/html", media == "application/xhtml+xml":
		return markup
	case strings.HasPrefix(media, "text/"), strings.HasSuffix(media, "json"), strings.HasSuffix(media, "xml"), strings.HasSuffix(media, "javascript"):
		return readable
	}
	return binary
}
