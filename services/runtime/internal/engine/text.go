package engine

import (
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// partial is how many bytes at the start of b begin a character and do not end it, at least 1. After a byte that no
// character begins with, that is 1. The standards put one U+FFFD for each such part.
func partial(b []byte) int {
	lo, hi, need := byte(0x80), byte(0xbf), 0
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		need = 1
	case c >= 0xe0 && c <= 0xef:
		need = 2
	case c >= 0xf0 && c <= 0xf4:
		need = 3
	}
	switch b[0] {
	case 0xe0:
		lo = 0xa0
	case 0xed:
		hi = 0x9f
	case 0xf0:
		lo = 0x90
	case 0xf4:
		hi = 0x8f
	}
	n := 1
	for n <= need && n < len(b) && b[n] >= lo && b[n] <= hi {
		lo, hi = 0x80, 0xbf
		n++
	}
	return n
}

// decodeUTF8 is the decoder of the Encoding Standard.
func decodeUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			size = partial(b)
		}
		out.WriteRune(r)
		b = b[size:]
	}
	return out.String()
}

// unfinished is how many bytes at the end of b may yet become a character.
func unfinished(b []byte, wide bool) int {
	if wide {
		n := len(b) % 2
		if whole := len(b) - n; whole >= 2 && b[whole-1]&0xfc == 0xd8 { // the first half of a pair
			n += 2
		}
		return n
	}
	for n := min(3, len(b)); n > 0; n-- {
		rest := b[len(b)-n:]
		if rest[0] >= 0xc2 && rest[0] <= 0xf4 && !utf8.FullRune(rest) && partial(rest) == n {
			return n
		}
	}
	return 0
}

// decodeUTF16 decodes little-endian bytes and says whether all of them were text.
func decodeUTF16(b []byte) (string, bool) {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = uint16(b[2*i]) | uint16(b[2*i+1])<<8
	}
	text := utf16.Decode(units)
	valid := len(b)%2 == 0 && slices.Equal(utf16.Encode(text), units)
	if n := len(units); len(b)%2 != 0 && (n == 0 || units[n-1]&0xfc00 != 0xd800) { // or it is part of what was cut off
		text = append(text, utf8.RuneError)
	}
	return string(text), valid
}

// encodeInto writes as many whole characters of s as into holds, and says how many UTF-16 units and bytes they are.
func encodeInto(s string, into []byte) (read, written int) {
	for _, r := range s {
		size := utf8.RuneLen(r)
		if written+size > len(into) {
			break
		}
		written += utf8.EncodeRune(into[written:], r)
		read += utf16.RuneLen(r)
	}
	return read, written
}
