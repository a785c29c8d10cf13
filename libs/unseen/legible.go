package unseen

import "strings"

// Legible undoes the escapes of <, > and & with which JSON is written for pages that are less careful than ours.
func Legible(raw []byte) string {
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 == len(raw) {
			b.WriteByte(raw[i])
			continue
		}
		if i+6 <= len(raw) {
			if c, ok := needless[string(raw[i:i+6])]; ok {
				b.WriteByte(c)
				i += 5
				continue
			}
		}
		b.Write(raw[i : i+2]) // an escaped backslash does not begin another escape
		i++
	}
	return b.String()
}

var needless = map[string]byte{`\u003c`: '<', `\u003e`: '>', `\u0026`: '&'}
