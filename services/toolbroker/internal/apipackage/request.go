package apipackage

import (
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/execwarden/execwarden/libs/problem"
)

// request is a call as it goes out, but for the credential.
type request struct {
	target  string // path and query, escaped
	headers []pair
	media   string // of the body; none without one
	body    []byte
}

// encode fills an operation's places with checked arguments.
func encode(o *Operation, args []member, secretQuery string) (request, error) {
	given := make(map[string]value, len(args))
	for _, a := range args {
		given[a.name] = a.value
	}
	var r request
	path, err := encodePath(o, given)
	if err != nil {
		return r, err
	}
	query, err := encodeQuery(o, given, secretQuery)
	if err != nil {
		return r, err
	}
	r.target = path
	if query != "" {
		r.target += "?" + query
	}
	for _, p := range o.Parameters {
		v, ok := given[p.Arg]
		if p.In != InHeader || !ok {
			continue
		}
		text, err := styled(p, v, func(s string) string { return s })
		if err != nil {
			return r, err
		}
		if !httpguts.ValidHeaderFieldValue(text) {
			return r, problem.New(problem.Invalid, "argument %s holds a line break or control character, which a header cannot", p.Arg)
		}
		r.headers = append(r.headers, pair{name: p.Name, value: text})
	}
	if o.Body != nil {
		r.body, r.media, err = o.Body.encode(args)
	}
	return r, err
}

func encodePath(o *Operation, given map[string]value) (string, error) {
	var b strings.Builder
	for _, part := range o.Path {
		if part.Param == "" {
			b.WriteString(part.Text)
			continue
		}
		i := slices.IndexFunc(o.Parameters, func(p Parameter) bool { return p.In == InPath && p.Name == part.Param })
		if i < 0 {
			return "", problem.New(problem.Internal, "%s has no parameter %s", o.Tool, part.Param)
		}
		p := o.Parameters[i]
		v, ok := given[p.Arg]
		if !ok {
			return "", problem.New(problem.Invalid, "argument %s is missing", p.Arg)
		}
		text, err := pathParameter(p, v)
		if err != nil {
			return "", err
		}
		b.WriteString(text)
	}
	if climbs(b.String()) {
		return "", problem.New(problem.Denied, "the arguments would lead to another path of the API")
	}
	return b.String(), nil
}

// pathParameter writes a parameter of a path so that it stays where it is put: it cannot be empty, climb, or begin
// another segment, unless the document says that it spans several.
func pathParameter(p Parameter, v value) (string, error) {
	var fault error
	esc := func(word string) string {
		switch {
		case strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f }):
			fault = problem.New(problem.Invalid, "argument %s holds a control character, which a path cannot", p.Arg)
		case climbs(escape(word, unreserved)):
			fault = problem.New(problem.Denied, "argument %s: %.100q would lead to another path of the API", p.Arg, word)
		}
		if !p.MultiSegment {
			return escape(word, unreserved)
		}
		segments := strings.Split(word, "/")
		for i, s := range segments {
			if s == "" {
				fault = problem.New(problem.Invalid, "argument %s: %.100q has an empty segment", p.Arg, word)
			}
			segments[i] = escape(s, unreserved)
		}
		return strings.Join(segments, "/")
	}
	text, err := styled(p, v, esc)
	switch {
	case err != nil:
		return "", err
	case fault != nil:
		return "", fault
	case text == "":
		return "", problem.New(problem.Invalid, "argument %s is part of the path and cannot be empty", p.Arg)
	}
	return text, nil
}

func encodeQuery(o *Operation, given map[string]value, secret string) (string, error) {
	var b strings.Builder
	for _, p := range o.Parameters {
		v, ok := given[p.Arg]
		if p.In != InQuery || !ok {
			continue
		}
		also := unreserved
		if p.Reserved {
			also = reservedOK
		}
		esc := func(s string) string { return escape(s, also) }
		list := []pair{{name: p.Name, value: string(v.appendJSON(nil))}}
		if !p.JSON {
			var err error
			if list, err = pairs(p.Name, p.Style, p.Explode, v, esc); err != nil {
				return "", err
			}
		}
		for _, q := range list {
			if q.name != p.Name && !strings.HasPrefix(q.name, p.Name+"[") && owned(o, q.name, secret) {
				return "", problem.New(problem.Denied, "argument %s: its member %.60q is a parameter of its own", p.Arg, q.name)
			}
			if !q.joined {
				q.value = esc(q.value)
			}
			if b.Len() > 0 {
				b.WriteByte('&')
			}
			b.WriteString(escape(q.name, unreserved) + "=" + q.value)
		}
	}
	return b.String(), nil
}

// owned says whether a name in the query is one that a member of an exploded object may not take.
func owned(o *Operation, name, secret string) bool {
	return secret != "" && strings.EqualFold(name, secret) ||
		slices.ContainsFunc(o.Parameters, func(p Parameter) bool { return p.In == InQuery && p.Name == name })
}
