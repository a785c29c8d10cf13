package store

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// What of JSON the store gives to Postgres as jsonb. One value that it refuses would fail the whole COPY, and a
// number such as 1e131071 is short here and long there.
const (
	maxDoc      = 1 << 20
	maxDepth    = 256
	maxNumber   = 128
	maxExponent = 400
)

// docOf returns raw if it is JSON that jsonb can hold, and nil if not.
func docOf(raw []byte) []byte {
	if len(raw) == 0 || len(raw) > maxDoc || !utf8.Valid(raw) || !json.Valid(raw) {
		return nil
	}
	// What follows relies on the grammar being right: only sizes and escapes are left to check.
	depth := 0
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			n := stringLen(raw[i:])
			if n == 0 {
				return nil
			}
			i += n
		case c == '-' || c >= '0' && c <= '9':
			n := numberLen(raw[i:])
			if n == 0 {
				return nil
			}
			i += n
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return nil
			}
			i++
		case c == '}' || c == ']':
			depth--
			i++
		default:
			i++
		}
	}
	return raw
}

// stringLen is the length of the string at the start of s, or 0 if Postgres cannot hold it.
func stringLen(s []byte) int {
	for i := 1; ; {
		switch s[i] {
		case '"':
			return i + 1
		case '\\':
			if s[i+1] != 'u' {
				i += 2
				continue
			}
			n := escapeLen(s[i:])
			if n == 0 {
				return 0
			}
			i += n
		default:
			i++
		}
	}
}

// escapeLen is the length of the \u escape at the start of s, both halves of a pair together, or 0 for the two kinds
// that are valid JSON and no text: \u0000, and half a surrogate pair.
func escapeLen(s []byte) int {
	r := rune(hex4(s[2:6]))
	switch {
	case r == 0:
		return 0
	case !utf16.IsSurrogate(r):
		return 6
	case bytes.HasPrefix(s[6:], []byte(`\u`)) && utf16.DecodeRune(r, rune(hex4(s[8:12]))) != utf8.RuneError:
		return 12
	}
	return 0
}

func hex4(s []byte) uint64 {
	n, _ := strconv.ParseUint(string(s), 16, 16) // the grammar was checked
	return n
}

// numberLen is the length of the number at the start of s, or 0 if it is too long or too far from 1.
func numberLen(s []byte) int {
	n := 0
	for n < len(s) && bytes.IndexByte([]byte("+-.0123456789eE"), s[n]) >= 0 {
		n++
	}
	if n > maxNumber {
		return 0
	}
	if e := bytes.IndexAny(s[:n], "eE"); e >= 0 {
		exponent, err := strconv.Atoi(string(s[e+1 : n]))
		if err != nil || exponent > maxExponent || exponent < -maxExponent {
			return 0
		}
	}
	return n
}
