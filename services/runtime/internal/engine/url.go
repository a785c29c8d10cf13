package engine

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// address is a URL as the WHATWG standard has it (url.spec.whatwg.org), which scripts know from browsers and node; the
// rules of net/url are others.
type address struct {
	scheme             string
	username, password string
	host               *string // nil for none; empty as in file:///x
	port               string  // empty for none and for the scheme's own
	path               []string
	opaque             *string // what mailto: and the like have instead of host and path
	query, fragment    *string
}

// schemes that the standard calls special, with their ports.
var specialSchemes = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21", "file": ""}

func (a *address) special() bool {
	_, yes := specialSchemes[a.scheme]
	return yes
}

func (a *address) setPort(digits string) bool {
	n := 0
	for _, d := range digits {
		if n = n*10 + int(d-'0'); n > 65535 {
			return false
		}
	}
	if a.port = strconv.Itoa(n); a.port == specialSchemes[a.scheme] {
		a.port = ""
	}
	return true
}

// shorten takes the last segment away, but never a drive.
func (a *address) shorten() {
	if a.scheme == "file" && len(a.path) == 1 && isDrive(a.path[0]) && a.path[0][1] == ':' {
		return
	}
	if len(a.path) > 0 {
		a.path = a.path[:len(a.path)-1]
	}
}

func isDrive(s string) bool {
	return len(s) == 2 && isLetter(rune(s[0])) && (s[1] == ':' || s[1] == '|')
}

func (a *address) pathname() string {
	if a.opaque != nil {
		return *a.opaque
	}
	if len(a.path) == 0 {
		return ""
	}
	return "/" + strings.Join(a.path, "/")
}

func (a *address) hostPort() string {
	if a.host == nil {
		return ""
	}
	return *a.host + prefixed(":", a.port)
}

func (a *address) href() string {
	var b strings.Builder
	b.WriteString(a.scheme + ":")
	switch {
	case a.host != nil:
		b.WriteString("//")
		if a.username != "" || a.password != "" {
			b.WriteString(a.username + prefixed(":", a.password) + "@")
		}
		b.WriteString(a.hostPort())
	case a.opaque == nil && len(a.path) > 1 && a.path[0] == "":
		b.WriteString("/.") // or the path would be taken for a host
	}
	b.WriteString(a.pathname())
	if a.query != nil {
		b.WriteString("?" + *a.query)
	}
	if a.fragment != nil {
		b.WriteString("#" + *a.fragment)
	}
	return b.String()
}

func (a *address) origin() string {
	if !a.special() || a.scheme == "file" {
		return "null"
	}
	return a.scheme + "://" + a.hostPort()
}

// urlParts are the components that js/url.js shows.
type urlParts struct {
	Href     string `json:"href"`
	Origin   string `json:"origin"`
	Protocol string `json:"protocol"`
	Username string `json:"username"`
	Password string `json:"password"`
	Host     string `json:"host"`
	Hostname string `json:"hostname"`
	Port     string `json:"port"`
	Pathname string `json:"pathname"`
	Search   string `json:"search"`
	Hash     string `json:"hash"`
}

func (a *address) parts() string {
	p := urlParts{Href: a.href(), Origin: a.origin(), Protocol: a.scheme + ":", Username: a.username, Password: a.password,
		Host: a.hostPort(), Port: a.port, Pathname: a.pathname()}
	if a.host != nil {
		p.Hostname = *a.host
	}
	if a.query != nil {
		p.Search = prefixed("?", *a.query)
	}
	if a.fragment != nil {
		p.Hash = prefixed("#", *a.fragment)
	}
	text, err := json.Marshal(p)
	if err != nil {
		return ""
	}
	return string(text)
}

func prefixed(mark, s string) string {
	if s == "" {
		return ""
	}
	return mark + s
}

// parseURL resolves text against base and gives its parts as JSON, or "" if there is no such URL.
func parseURL(text string, base *string) string {
	var against *address
	if base != nil {
		if against = parseAddress(*base, nil); against == nil {
			return ""
		}
	}
	a := parseAddress(text, against)
	if a == nil {
		return ""
	}
	return a.parts()
}

// changeURL gives the parts of href with one part changed. What cannot be is left as it was.
func changeURL(href, part, value string) string {
	a := parseAddress(href, nil)
	if a == nil {
		return ""
	}
	noPort := a.host == nil || *a.host == "" || a.scheme == "file"
	switch part {
	case "protocol":
		a.change(value+":", stateSchemeStart)
	case "username":
		if !noPort {
			a.username = escape(value, inUserinfo)
		}
	case "password":
		if !noPort {
			a.password = escape(value, inUserinfo)
		}
	case "host", "hostname":
		if a.opaque == nil {
			a.change(value, map[string]state{"host": stateHost, "hostname": stateHostname}[part])
		}
	case "port":
		if noPort {
			break
		}
		if value == "" {
			a.port = ""
		} else {
			a.change(value, statePort)
		}
	case "pathname":
		if a.opaque == nil {
			a.path = nil
			a.change(value, statePathStart)
		}
	case "search":
		a.query = nil
		if value != "" {
			a.query = new(string)
			a.change(strings.TrimPrefix(value, "?"), stateQuery)
		}
	case "hash":
		a.fragment = nil
		if value != "" {
			a.fragment = new(string)
			a.change(strings.TrimPrefix(value, "#"), stateFragment)
		}
	}
	if a.opaque != nil && a.query == nil && a.fragment == nil {
		trimmed := strings.TrimRight(*a.opaque, " ") // or the end of the text would lose them when it is read again
		a.opaque = &trimmed
	}
	return a.parts()
}

// escapeSet says which ASCII characters a component escapes; what is not ASCII, every component does.
type escapeSet func(rune) bool

func isControl(r rune) bool { return r < 0x20 || r > 0x7e }
func inFragment(r rune) bool {
	return isControl(r) || strings.ContainsRune(" \"<>`", r)
}
func inQuery(r rune) bool {
	return isControl(r) || strings.ContainsRune(" \"#<>", r)
}
func inSpecialQuery(r rune) bool { return inQuery(r) || r == '\'' }
func inPath(r rune) bool         { return inQuery(r) || strings.ContainsRune("?^`{}", r) }
func inUserinfo(r rune) bool     { return inPath(r) || strings.ContainsRune("/:;=@[\\]|", r) }

func escape(s string, in escapeSet) string {
	var b strings.Builder
	for _, r := range s {
		escapeTo(&b, r, in)
	}
	return b.String()
}

func escapeTo(b *strings.Builder, r rune, in escapeSet) {
	if !in(r) {
		b.WriteRune(r)
		return
	}
	for _, c := range utf8.AppendRune(nil, r) {
		b.WriteByte('%')
		b.WriteByte("0123456789ABCDEF"[c>>4])
		b.WriteByte("0123456789ABCDEF"[c&15])
	}
}

// unescape decodes the escapes that are some, and leaves the rest.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// escapeQuery and unescapeQuery are for application/x-www-form-urlencoded, as URLSearchParams reads and writes it.
func escapeQuery(s string) string {
	return strings.ReplaceAll(escape(s, func(r rune) bool {
		return r != ' ' && !isLetter(r) && !isDigit(r) && !strings.ContainsRune("*-._", r)
	}), " ", "+")
}

func unescapeQuery(s string) string {
	return decodeUTF8([]byte(unescape(strings.ReplaceAll(s, "+", " "))))
}

func isLetter(r rune) bool { return r|0x20 >= 'a' && r|0x20 <= 'z' }
func isDigit(r rune) bool  { return r >= '0' && r <= '9' }
