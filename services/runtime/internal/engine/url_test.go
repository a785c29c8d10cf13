package engine

import (
	"encoding/json"
	"testing"
)

// FuzzURL: a URL that was made is read again as itself, whatever it was made from, and a change makes another or none.
func FuzzURL(f *testing.F) {
	for _, text := range []string{
		"https://user:pw@a.test:8080/b/../c?d#e", "http://0x7f.1/", "http://[::1]:80/", "file:///C|/x", "file:C:/..", "mailto:a@b", "custom://h/a/../..", "custom:/.//x",
		"http://münchen.de/", "//h/x", "\\\\h\\x", "http:a", "http://%41%zz/", "?q", "#h", "", "a:b:c", "http://a:65536", "javascript:x", "data:x  #h", "http://a@b@c:d@e/",
	} {
		f.Add(text, "http://a.test/b/c?d#e", "x:1")
		f.Add(text, "file:///C:/x", "[::2]:3")
		f.Add(text, "custom:x", "//")
	}
	f.Fuzz(func(t *testing.T, text, base, value string) {
		for _, made := range []string{parseURL(text, nil), parseURL(text, &base)} {
			if made == "" {
				continue
			}
			parts := partsIn(t, made)
			for _, part := range []string{"", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"} {
				changed := partsIn(t, changeURL(parts.Href, part, value))
				if part == "" && changed != parts {
					t.Fatalf("%q is read again as %q", parts.Href, changed.Href)
				}
				if again := partsIn(t, parseURL(changed.Href, nil)); again.Href != changed.Href || again.Host != changed.Host {
					t.Fatalf("%q with %s %q is %q, which is read as %q", parts.Href, part, value, changed.Href, again.Href)
				}
			}
		}
	})
}

func partsIn(t *testing.T, text string) (p urlParts) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return p
}
