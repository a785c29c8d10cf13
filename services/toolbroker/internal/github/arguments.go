package github

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// maxComment is GitHub's limit on a comment, in characters; ours leaves room for the marker.
const maxComment = 65_000

// arguments are the checked arguments of a call. Their fields are safe to build a path from.
type arguments struct {
	Owner  string
	Repo   string
	Number int
	Body   string
	Method string
	Page   int
}

var (
	ownerPattern = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})$`)
	repoPattern  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
)

// aliases are spellings that models use for the same argument.
var aliases = map[string]string{"issueNumber": "issue_number", "number": "issue_number", "pullNumber": "issue_number", "per_page": "perPage"}

// parseArguments reads an argument object. Unknown arguments are refused by name, numbers may come as text.
func parseArguments(raw json.RawMessage, required, optional []string) (arguments, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return arguments{}, problem.New(problem.Invalid, "the arguments are not a JSON object")
	}
	named := make(map[string]json.RawMessage, len(given))
	for name, v := range given {
		if a, ok := aliases[name]; ok {
			name = a
		}
		if !slices.Contains(required, name) && !slices.Contains(optional, name) {
			return arguments{}, problem.New(problem.Invalid, "there is no argument %.60q; there are %s", name, strings.Join(append(slices.Clone(required), optional...), ", "))
		}
		if _, twice := named[name]; twice {
			return arguments{}, problem.New(problem.Invalid, "argument %s is given twice", name)
		}
		named[name] = v
	}
	for _, name := range required {
		if _, ok := named[name]; !ok {
			return arguments{}, problem.New(problem.Invalid, "argument %s is missing", name)
		}
	}
	var a arguments
	var err error
	for name, v := range named {
		switch name {
		case "owner":
			a.Owner, err = text(name, v, 39)
		case "repo":
			a.Repo, err = text(name, v, 100)
		case "body":
			a.Body, err = text(name, v, maxComment)
		case "method":
			a.Method, err = text(name, v, 40)
		case "issue_number":
			a.Number, err = number(name, v)
		case "page":
			a.Page, err = number(name, v)
		}
		if err != nil {
			return arguments{}, err
		}
	}
	if !ownerPattern.MatchString(a.Owner) {
		return arguments{}, problem.New(problem.Invalid, "owner %.60q is not a GitHub account name", a.Owner)
	}
	if !repoPattern.MatchString(a.Repo) || a.Repo == "." || a.Repo == ".." {
		return arguments{}, problem.New(problem.Invalid, "repo %.60q is not a repository name", a.Repo)
	}
	return a, nil
}

func text(name string, raw json.RawMessage, limit int) (string, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", problem.New(problem.Invalid, "argument %s has to be text", name)
	}
	if len([]rune(s)) > limit {
		return "", problem.New(problem.TooLarge, "argument %s is over %d characters", name, limit)
	}
	return s, nil
}

func number(name string, raw json.RawMessage) (int, error) {
	n, err := strconv.Atoi(string(bytes.Trim(raw, `"`)))
	if err != nil || n < 1 {
		return 0, problem.New(problem.Invalid, "argument %s has to be a number from 1", name)
	}
	return n, nil
}
