package engine

import (
	"encoding/json"
	"net/url"
	"strings"
)

// urlParts are the components that js/url.js shows.
type urlParts struct {
	Protocol string `json:"protocol"`
	Username string `json:"username"`
	Password string `json:"password"`
	Hostname string `json:"hostname"`
	Port     string `json:"port"`
	Pathname string `json:"pathname"`
	Search   string `json:"search"`
	Hash     string `json:"hash"`
	Opaque   bool   `json:"opaque"` // mailto: and the like, without an authority
}

var defaultPorts = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}

// parseURL resolves text against base and gives its parts as JSON, or "" if there is no such URL.
func parseURL(text, base string) string {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return ""
	}
	if base != "" {
		b, err := url.Parse(strings.TrimSpace(base))
		if err != nil || !b.IsAbs() {
			return ""
		}
		u = b.ResolveReference(u)
	}
	return partsOf(u)
}

func partsOf(u *url.URL) string {
	scheme := strings.ToLower(u.Scheme)
	_, special := defaultPorts[scheme]
	if scheme == "" || special && u.Hostname() == "" {
		return ""
	}
	p := urlParts{Protocol: scheme + ":", Hash: prefixed("#", u.EscapedFragment()), Search: prefixed("?", u.RawQuery)}
	if u.Opaque != "" {
		p.Opaque, p.Pathname = true, u.Opaque
		return encodeParts(p)
	}
	p.Hostname = strings.ToLower(u.Hostname())
	if strings.Contains(p.Hostname, ":") {
		p.Hostname = "[" + p.Hostname + "]"
	}
	if port := u.Port(); port != defaultPorts[scheme] {
		p.Port = port
	}
	if u.User != nil {
		p.Username = url.PathEscape(u.User.Username())
		password, _ := u.User.Password()
		p.Password = url.PathEscape(password)
	}
	p.Pathname = u.JoinPath().EscapedPath() // without . and ..
	if p.Pathname == "" && special {
		p.Pathname = "/"
	}
	return encodeParts(p)
}

// rebuildURL checks parts of which a script changed one, and gives them normalised, or "".
func rebuildURL(parts string) string {
	var p urlParts
	if json.Unmarshal([]byte(parts), &p) != nil || p.Opaque {
		return ""
	}
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(p.Protocol, ":") + "://")
	if p.Username != "" {
		b.WriteString(p.Username)
		if p.Password != "" {
			b.WriteString(":" + p.Password)
		}
		b.WriteString("@")
	}
	b.WriteString(p.Hostname)
	b.WriteString(prefixed(":", strings.TrimPrefix(p.Port, ":")))
	if p.Pathname != "" && !strings.HasPrefix(p.Pathname, "/") {
		b.WriteString("/")
	}
	b.WriteString(escapeFor(p.Pathname, "?#"))
	b.WriteString(prefixed("?", escapeFor(strings.TrimPrefix(p.Search, "?"), "#")))
	b.WriteString(prefixed("#", strings.TrimPrefix(p.Hash, "#")))
	u, err := url.Parse(b.String())
	if err != nil {
		return ""
	}
	return partsOf(u)
}

func encodeParts(p urlParts) string {
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

// escapeFor escapes the marks that would end a component early, and spaces.
func escapeFor(s, marks string) string {
	for _, mark := range marks + " " {
		s = strings.ReplaceAll(s, string(mark), url.PathEscape(string(mark)))
	}
	return s
}

// unescapeQuery decodes + and the valid escapes.
func unescapeQuery(s string) string {
	s = strings.ReplaceAll(s, "+", " ")
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if r, err := url.PathUnescape(s[i : i+3]); err == nil {
				b.WriteString(r)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}
