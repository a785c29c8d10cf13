package engine

import "strings"

// state is where the standard's parser is. Its names are the standard's.
type state int

const (
	stateNone state = iota
	stateSchemeStart
	stateScheme
	stateNoScheme
	stateSpecialRelativeOrAuthority
	statePathOrAuthority
	stateRelative
	stateRelativeSlash
	stateSpecialAuthoritySlashes
	stateSpecialAuthorityIgnoreSlashes
	stateAuthority
	stateHost
	stateHostname
	statePort
	stateFile
	stateFileSlash
	stateFileHost
	statePathStart
	statePath
	stateOpaquePath
	stateQuery
	stateFragment
)

const end rune = -1 // after the last character

// parseAddress is the standard's basic URL parser. It gives nil for what is no URL.
func parseAddress(text string, base *address) *address {
	a := &address{}
	text = strings.TrimFunc(text, func(r rune) bool { return r <= ' ' })
	if !a.parse(text, base, stateNone) {
		return nil
	}
	return a
}

// change parses text as one part of a, as the setters of URL do, and leaves a as it was if that fails.
func (a *address) change(text string, part state) {
	before := *a
	before.path = append([]string(nil), a.path...)
	if !a.parse(text, nil, part) {
		*a = before
	}
}

// parse reads text into a, from the start or, with only, one part of it. It is false for what cannot be.
func (a *address) parse(text string, base *address, only state) bool {
	input := []rune(strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(text))
	at := func(i int) rune {
		if i < len(input) {
			return input[i]
		}
		return end
	}
	now := stateSchemeStart
	if only != stateNone {
		now = only
	}
	var buffer, username, password strings.Builder
	sawAt, sawPassword, inBrackets := false, false, false
	for i := 0; ; i++ {
		c := at(i)
		switch now {
		case stateSchemeStart:
			switch {
			case c != end && isLetter(c):
				buffer.WriteRune(c | 0x20)
				now = stateScheme
			case only != stateNone:
				return false
			default:
				now = stateNoScheme
				i--
			}
		case stateScheme:
			switch {
			case c != end && (isLetter(c) || isDigit(c) || strings.ContainsRune("+-.", c)):
				buffer.WriteString(strings.ToLower(string(c)))
			case c == ':':
				scheme := buffer.String()
				if only != stateNone {
					return a.changeScheme(scheme)
				}
				a.scheme = scheme
				buffer.Reset()
				switch {
				case scheme == "file":
					now = stateFile
				case a.special() && base != nil && base.scheme == scheme:
					now = stateSpecialRelativeOrAuthority
				case a.special():
					now = stateSpecialAuthoritySlashes
				case at(i+1) == '/':
					now = statePathOrAuthority
					i++
				default:
					a.opaque = new(string)
					now = stateOpaquePath
				}
			case only != stateNone:
				return false
			default:
				buffer.Reset()
				now = stateNoScheme
				i = -1
			}
		case stateNoScheme:
			switch {
			case base == nil || base.opaque != nil && c != '#':
				return false
			case base.opaque != nil:
				a.scheme, a.opaque, a.query, a.fragment = base.scheme, base.opaque, base.query, new(string)
				now = stateFragment
			case base.scheme == "file":
				now = stateFile
				i--
			default:
				now = stateRelative
				i--
			}
		case stateSpecialRelativeOrAuthority:
			if c == '/' && at(i+1) == '/' {
				now = stateSpecialAuthorityIgnoreSlashes
				i++
			} else {
				now = stateRelative
				i--
			}
		case statePathOrAuthority:
			if c == '/' {
				now = stateAuthority
			} else {
				now = statePath
				i--
			}
		case stateRelative:
			a.scheme = base.scheme
			if c == '/' || a.special() && c == '\\' {
				now = stateRelativeSlash
				break
			}
			a.inherit(base)
			a.path, a.query = append([]string(nil), base.path...), base.query
			switch c {
			case '?':
				a.query = new(string)
				now = stateQuery
			case '#':
				a.fragment = new(string)
				now = stateFragment
			case end:
			default:
				a.query = nil
				a.shorten()
				now = statePath
				i--
			}
		case stateRelativeSlash:
			switch {
			case a.special() && (c == '/' || c == '\\'):
				now = stateSpecialAuthorityIgnoreSlashes
			case c == '/':
				now = stateAuthority
			default:
				a.inherit(base)
				now = statePath
				i--
			}
		case stateSpecialAuthoritySlashes:
			now = stateSpecialAuthorityIgnoreSlashes
			if c == '/' && at(i+1) == '/' {
				i++
			} else {
				i--
			}
		case stateSpecialAuthorityIgnoreSlashes:
			if c != '/' && c != '\\' {
				now = stateAuthority
				i--
			}
		case stateAuthority:
			switch {
			case c == '@':
				text := buffer.String()
				if sawAt {
					text = "%40" + text
				}
				sawAt = true
				for _, r := range text {
					switch {
					case r == ':' && !sawPassword:
						sawPassword = true
					case sawPassword:
						escapeTo(&password, r, inUserinfo)
					default:
						escapeTo(&username, r, inUserinfo)
					}
				}
				a.username, a.password = username.String(), password.String()
				buffer.Reset()
			case a.endsAuthority(c):
				if sawAt && buffer.Len() == 0 {
					return false
				}
				i -= len([]rune(buffer.String())) + 1
				buffer.Reset()
				now = stateHost
			default:
				buffer.WriteRune(c)
			}
		case stateHost, stateHostname:
			switch {
			case only != stateNone && a.scheme == "file":
				now = stateFileHost
				i--
			case c == ':' && !inBrackets:
				if buffer.Len() == 0 || only == stateHostname || !a.setHost(buffer.String()) {
					return false
				}
				buffer.Reset()
				now = statePort
			case a.endsAuthority(c):
				i--
				if a.special() && buffer.Len() == 0 || only != stateNone && buffer.Len() == 0 && (a.username != "" || a.password != "" || a.port != "") {
					return false
				}
				if !a.setHost(buffer.String()) {
					return false
				}
				if only != stateNone {
					return true
				}
				buffer.Reset()
				now = statePathStart
			default:
				inBrackets = c == '[' || inBrackets && c != ']'
				buffer.WriteRune(c)
			}
		case statePort:
			switch {
			case c != end && isDigit(c):
				buffer.WriteRune(c)
			case a.endsAuthority(c) || only != stateNone:
				if buffer.Len() > 0 {
					if !a.setPort(buffer.String()) {
						return false
					}
					buffer.Reset()
				} else if only == statePort {
					return false
				}
				if only != stateNone {
					return true
				}
				now = statePathStart
				i--
			default:
				return false
			}
		case stateFile:
			a.scheme, a.host = "file", new(string)
			switch {
			case c == '/' || c == '\\':
				now = stateFileSlash
			case base != nil && base.scheme == "file":
				a.host, a.path, a.query = base.host, append([]string(nil), base.path...), base.query
				switch c {
				case '?':
					a.query = new(string)
					now = stateQuery
				case '#':
					a.fragment = new(string)
					now = stateFragment
				case end:
				default:
					a.query = nil
					if startsWithDrive(input[i:]) {
						a.path = nil
					} else {
						a.shorten()
					}
					now = statePath
					i--
				}
			default:
				now = statePath
				i--
			}
		case stateFileSlash:
			if c == '/' || c == '\\' {
				now = stateFileHost
				break
			}
			if base != nil && base.scheme == "file" {
				a.host = base.host
				if !startsWithDrive(input[min(i, len(input)):]) && len(base.path) > 0 && isDrive(base.path[0]) && base.path[0][1] == ':' {
					a.path = append(a.path, base.path[0])
				}
			}
			now = statePath
			i--
		case stateFileHost:
			if c != end && c != '/' && c != '\\' && c != '?' && c != '#' {
				buffer.WriteRune(c)
				break
			}
			i--
			switch {
			case only == stateNone && isDrive(buffer.String()):
				now = statePath // what looks like a host is the path's first segment
			case buffer.Len() == 0:
				a.host = new(string)
				if only != stateNone {
					return true
				}
				now = statePathStart
			default:
				if !a.setHost(buffer.String()) {
					return false
				}
				if *a.host == "localhost" {
					*a.host = ""
				}
				if only != stateNone {
					return true
				}
				buffer.Reset()
				now = statePathStart
			}
		case statePathStart:
			switch {
			case a.special():
				now = statePath
				if c != '/' && c != '\\' {
					i--
				}
			case only == stateNone && c == '?':
				a.query = new(string)
				now = stateQuery
			case only == stateNone && c == '#':
				a.fragment = new(string)
				now = stateFragment
			case c != end:
				now = statePath
				if c != '/' {
					i--
				}
			case only != stateNone && a.host == nil:
				a.path = append(a.path, "")
			}
		case statePath:
			slash := c == '/' || a.special() && c == '\\'
			if c != end && !slash && (only != stateNone || c != '?' && c != '#') {
				escapeTo(&buffer, c, inPath)
				break
			}
			a.addSegment(buffer.String(), slash)
			buffer.Reset()
			switch c {
			case '?':
				a.query = new(string)
				now = stateQuery
			case '#':
				a.fragment = new(string)
				now = stateFragment
			}
		case stateOpaquePath:
			switch c {
			case '?':
				*a.opaque = buffer.String()
				a.query = new(string)
				buffer.Reset()
				now = stateQuery
			case '#':
				*a.opaque = buffer.String()
				a.fragment = new(string)
				buffer.Reset()
				now = stateFragment
			case end:
				*a.opaque = buffer.String()
			default:
				escapeTo(&buffer, c, isControl)
			}
		case stateQuery:
			if c != end && (only != stateNone || c != '#') {
				in := inQuery
				if a.special() {
					in = inSpecialQuery
				}
				escapeTo(&buffer, c, in)
				break
			}
			*a.query = buffer.String()
			buffer.Reset()
			if c == '#' {
				a.fragment = new(string)
				now = stateFragment
			}
		case stateFragment:
			if c != end {
				escapeTo(&buffer, c, inFragment)
			} else {
				*a.fragment = buffer.String()
			}
		}
		if c == end && i >= len(input) {
			return true
		}
	}
}

// changeScheme goes from one special scheme to another, or between others, never across.
func (a *address) changeScheme(scheme string) bool {
	_, special := specialSchemes[scheme]
	if special != a.special() || scheme == "file" && (a.username != "" || a.password != "" || a.port != "") ||
		a.scheme == "file" && (a.host == nil || *a.host == "") {
		return false
	}
	if a.scheme = scheme; a.port == specialSchemes[scheme] {
		a.port = ""
	}
	return true
}

func (a *address) inherit(base *address) {
	a.username, a.password, a.host, a.port = base.username, base.password, base.host, base.port
}

func (a *address) endsAuthority(c rune) bool {
	return c == end || c == '/' || c == '?' || c == '#' || a.special() && c == '\\'
}

func (a *address) setHost(text string) bool {
	host, ok := parseHost(text, a.special())
	if ok {
		a.host = &host
	}
	return ok
}

// addSegment ends a segment of the path; dots go up or stay.
func (a *address) addSegment(s string, slash bool) {
	switch strings.ReplaceAll(strings.ToLower(s), "%2e", ".") {
	case "..":
		a.shorten()
		if !slash {
			a.path = append(a.path, "")
		}
	case ".":
		if !slash {
			a.path = append(a.path, "")
		}
	default:
		if a.scheme == "file" && len(a.path) == 0 && isDrive(s) {
			s = s[:1] + ":"
		}
		a.path = append(a.path, s)
	}
}

func startsWithDrive(rest []rune) bool {
	return len(rest) >= 2 && isDrive(string(rest[:2])) && (len(rest) == 2 || strings.ContainsRune(`/\?#`, rest[2]))
}
