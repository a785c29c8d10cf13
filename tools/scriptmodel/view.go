package scriptmodel

import (
	"encoding/json"
	"fmt"
	"regexp"
	"text/template"
)

// View is what a template sees of the conversation.
type View struct {
	Prompt  string   // the first text of the user
	Results []Result // of the tool calls so far, in the order of the calls
}

// Result is what one tool call came to.
type Result struct {
	Tool string
	Text string
}

// Result is the text of the latest result of a tool: {{.Result "tickets__find_owner"}}.
func (v View) Result(tool string) (string, error) {
	for i := len(v.Results) - 1; i >= 0; i-- {
		if v.Results[i].Tool == tool {
			return v.Results[i].Text, nil
		}
	}
	return "", fmt.Errorf("no result of %s so far", tool)
}

var functions = template.FuncMap{"find": find, "findOr": findOr, "quote": quote}

// find is the first group of a pattern's first match: {{find "(?m)^title: (.*)$" .Prompt}}. A text without a match is
// an error, since a script that goes on with nothing would hide what broke.
func find(pattern, text string) (string, error) {
	const nothing = "\x00" // no text of a conversation
	found, err := findOr(nothing, pattern, text)
	if found == nothing {
		return "", fmt.Errorf("%s is nowhere in %.200q", pattern, text)
	}
	return found, err
}

// findOr is find with a text for when there is no match: for a turn that makes sense without what it looks for.
func findOr(otherwise, pattern, text string) (string, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return "", err
	}
	if m := re.FindStringSubmatch(text); len(m) > 1 {
		return m[1], nil
	}
	return otherwise, nil
}

// quote makes a text a JSON string, which is also a JavaScript one: what a stranger wrote stays data in a script.
func quote(text string) (string, error) {
	raw, err := json.Marshal(text)
	return string(raw), err
}
