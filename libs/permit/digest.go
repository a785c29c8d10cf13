package permit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
)

// MaxArgs is the largest argument object of a call, in bytes.
const MaxArgs = 256 << 10

// CanonicalArgs checks that raw is one JSON object and gives the bytes that stand for it everywhere: compact, as the
// caller ordered it, and with <, > and & escaped as encoding/json does when the event that carries them is written: a
// digest over another spelling would not be that of the stored arguments. Duplicate keys are refused, since two
// readers could take different ones.
func CanonicalArgs(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) > MaxArgs {
		return nil, problem.New(problem.TooLarge, "the arguments are %d bytes, over %d", len(raw), MaxArgs)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	first, err := dec.Token()
	if err != nil || first != json.Delim('{') {
		return nil, problem.New(problem.Invalid, "the arguments are not a JSON object")
	}
	if err := distinctKeys(dec, 1); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, problem.New(problem.Invalid, "there is more after the argument object")
	}
	var compact, out bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the arguments are not a JSON object")
	}
	json.HTMLEscape(&out, compact.Bytes())
	if out.Len() > MaxArgs {
		return nil, problem.New(problem.TooLarge, "the arguments are %d bytes when escaped, over %d", out.Len(), MaxArgs)
	}
	return out.Bytes(), nil
}

// CanonicalInput is CanonicalArgs for what an MCP client answered to what a server asked (call.Args, Input): an object of
// inputResponses and requestState and nothing else, or nothing at all.
func CanonicalInput(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	out, err := CanonicalArgs(raw)
	if err != nil {
		return nil, problem.Wrap(err, problem.CodeOf(err), "the answers to what the server asked: %s", problem.DetailOf(err).Message)
	}
	var all map[string]json.RawMessage
	_ = json.Unmarshal(out, &all) // it is an object
	var responses map[string]json.RawMessage
	var state string
	for name, value := range all {
		switch {
		case name == "inputResponses" && json.Unmarshal(value, &responses) == nil && responses != nil:
		case name == "requestState" && value[0] == '"' && json.Unmarshal(value, &state) == nil:
		default:
			return nil, problem.New(problem.Invalid, "the answers to what the server asked are inputResponses, an object, and requestState, a text; not %.60q", name)
		}
	}
	return out, nil
}

// ArgsDigest binds all that a call is made with: its arguments, and the answers that come with them.
func ArgsDigest(a call.Args) string {
	if len(a.Input) == 0 {
		return Digest(a.Args)
	}
	return Digest(a.Args, a.Input)
}

// maxDepth bounds how deep arguments nest.
const maxDepth = 64

// distinctKeys reads the rest of an object, or of an array inside it.
func distinctKeys(dec *json.Decoder, depth int) error {
	if depth > maxDepth {
		return problem.New(problem.Invalid, "the arguments nest deeper than %d", maxDepth)
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return problem.Wrap(err, problem.Invalid, "the arguments are not valid JSON")
		}
		name, ok := t.(string)
		if !ok {
			return problem.New(problem.Invalid, "the arguments are not valid JSON")
		}
		if seen[name] {
			return problem.New(problem.Invalid, "the arguments name %.60q twice", name)
		}
		seen[name] = true
		if err := value(dec, depth); err != nil {
			return err
		}
	}
	_, err := dec.Token() // the closing brace
	return malformed(err)
}

func value(dec *json.Decoder, depth int) error {
	t, err := dec.Token()
	if err != nil {
		return malformed(err)
	}
	switch t {
	case json.Delim('{'):
		return distinctKeys(dec, depth+1)
	case json.Delim('['):
		if depth+1 > maxDepth {
			return problem.New(problem.Invalid, "the arguments nest deeper than %d", maxDepth)
		}
		for dec.More() {
			if err := value(dec, depth+1); err != nil {
				return err
			}
		}
		_, err := dec.Token() // the closing bracket
		return malformed(err)
	}
	return nil
}

func malformed(err error) error {
	if err == nil {
		return nil
	}
	return problem.Wrap(err, problem.Invalid, "the arguments are not valid JSON")
}

// Digest is the SHA-256 of the parts, each with its length in front, in hex.
func Digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		for i := range n {
			n[i] = byte(len(p) >> (56 - 8*i))
		}
		h.Write(n[:])
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
