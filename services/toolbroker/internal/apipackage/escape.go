package apipackage

import (
	"strings"
)

// The characters besides letters and digits that each place takes as they are.
const (
	unreserved = "-._~"
	pathText   = "-._~:@!$&'()*+,;=/%" // the fixed part of a path, as the document writes it
	reservedOK = "-._~:/?@!$'()*,;"    // allowReserved, without what would end the value or the query
)

// escape percent-encodes a text but for what a place takes as it is.
func escape(text, also string) string {
	const hexDigits = "0123456789ABCDEF"
	clean := true
	for i := range len(text) {
		if !plain(text[i], also) {
			clean = false
			break
		}
	}
	if clean {
		return text
	}
	b := make([]byte, 0, len(text)+16)
	for i := range len(text) {
		if c := text[i]; plain(c, also) {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(b)
}

func plain(c byte, also string) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(also, c) >= 0
}

// climbs says whether a path leaves the folder that it names: as it is, or decoded once more by every server on the
// way, or without the parameters that some take for no part of a segment.
func climbs(escaped string) bool {
	for range 5 {
		for segment := range strings.SplitSeq(strings.ReplaceAll(escaped, `\`, "/"), "/") {
			name, _, _ := strings.Cut(segment, ";")
			if name == "." || name == ".." {
				return true
			}
		}
		decoded := unescapeOnce(escaped)
		if decoded == escaped {
			return false
		}
		escaped = decoded
	}
	return true // encoded over and over: nobody does that in good faith
}

// unescapeOnce decodes what is percent-encoded and leaves a lone percent sign alone, as a lenient server does.
func unescapeOnce(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if high, low := hexValue(text[i+1]), hexValue(text[i+2]); high >= 0 && low >= 0 {
				b = append(b, byte(high<<4|low))
				i += 2
				continue
			}
		}
		b = append(b, text[i])
	}
	return string(b)
}

func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
