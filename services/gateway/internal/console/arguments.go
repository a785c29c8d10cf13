package console

import (
	"bytes"
	"encoding/json"
	"regexp"
)

// argument is one member of a call's argument object.
type argument struct {
	Name string
	Text string
}

// arguments lists the members of an object in its own order; none when it is not an object, or names a member twice,
// of which a reader and a tool could each believe another. The page then shows the JSON alone.
func arguments(raw json.RawMessage) []argument {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	var out []argument
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok || seen[name] {
			return nil
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil
		}
		var text string
		if json.Unmarshal(value, &text) != nil || value[0] != '"' {
			text = pretty(value)
		}
		out = append(out, argument{name, text})
	}
	return out
}

var repoPart = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

// repository is the repository that GitHub arguments name, "" when they name none that is one.
func repository(args []argument) string {
	var owner, repo string
	for _, a := range args {
		switch a.Name {
		case "owner":
			owner = a.Text
		case "repo":
			repo = a.Text
		}
	}
	if !repoPart.MatchString(owner) || !repoPart.MatchString(repo) {
		return ""
	}
	return owner + "/" + repo
}
