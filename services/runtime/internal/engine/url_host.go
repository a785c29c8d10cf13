package engine

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/idna"
)

const forbiddenInHost = "\x00\t\n\r #/:<>?@[\\]^|"

// parseHost is the standard's host parser: names as DNS asks for them, numbers as addresses.
func parseHost(text string, special bool) (string, bool) {
	if rest, ok := strings.CutPrefix(text, "["); ok {
		rest, ok = strings.CutSuffix(rest, "]")
		addr, err := netip.ParseAddr(rest)
		if !ok || err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", false
		}
		return "[" + sixString(addr) + "]", true
	}
	if !special {
		if strings.ContainsAny(text, forbiddenInHost) {
			return "", false
		}
		return escape(text, isControl), true
	}
	name, ok := toASCII(decodeUTF8([]byte(unescape(text))))
	if !ok || name == "" || strings.ContainsAny(name, forbiddenInHost+"%") || strings.ContainsFunc(name, isControl) {
		return "", false
	}
	if endsInNumber(name) {
		return fourString(name)
	}
	return name, true
}

// profile is made when a name needs it: most do not, and the worker starts without its tables in memory.
var profile = sync.OnceValue(func() *idna.Profile {
	return idna.New(idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(), idna.CheckJoiners(true),
		idna.CheckHyphens(false), idna.StrictDomainName(false), idna.VerifyDNSLength(false))
})

func toASCII(name string) (string, bool) {
	name = strings.ToLower(name)
	if !strings.ContainsFunc(name, func(r rune) bool { return r > 0x7e }) && !strings.Contains(name, "xn--") {
		return name, true
	}
	ascii, err := profile().ToASCII(name)
	return ascii, err == nil
}

func endsInNumber(name string) bool {
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	last := labels[len(labels)-1]
	if last != "" && strings.Trim(last, "0123456789") == "" {
		return true
	}
	_, ok := number(last)
	return ok
}

// number reads decimal, 0x and 0 octal, as inet_aton does.
func number(s string) (uint64, bool) {
	base := 10
	switch {
	case s == "":
		return 0, false
	case strings.HasPrefix(s, "0x"):
		s, base = s[2:], 16
	case len(s) > 1 && s[0] == '0':
		s, base = s[1:], 8
	}
	if s == "" {
		return 0, true
	}
	n, err := strconv.ParseUint(s, base, 64)
	return n, err == nil
}

func fourString(name string) (string, bool) {
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	if len(labels) > 4 {
		return "", false
	}
	var addr uint64
	for i, label := range labels {
		n, ok := number(label)
		most := uint64(255)
		if i == len(labels)-1 {
			most = 1<<(8*(5-len(labels))) - 1
		}
		if !ok || n > most {
			return "", false
		}
		if i < len(labels)-1 {
			n <<= 8 * (3 - i)
		}
		addr += n
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(addr)))).String(), true
}

// sixString shortens the first of the longest runs of zeros, and never writes an address of version 4 inside.
func sixString(addr netip.Addr) string {
	b := addr.As16()
	var pieces [8]uint16
	for i := range pieces {
		pieces[i] = binary.BigEndian.Uint16(b[2*i:])
	}
	from, size := -1, 1
	for i := 0; i < 8; i++ {
		n := 0
		for i+n < 8 && pieces[i+n] == 0 {
			n++
		}
		if n > size {
			from, size = i, n
		}
		i += n
	}
	var out strings.Builder
	for i := 0; i < 8; i++ {
		if i == from {
			out.WriteString("::")
			i += size - 1
			continue
		}
		if i > 0 && !strings.HasSuffix(out.String(), ":") {
			out.WriteByte(':')
		}
		out.WriteString(strconv.FormatUint(uint64(pieces[i]), 16))
	}
	return out.String()
}
