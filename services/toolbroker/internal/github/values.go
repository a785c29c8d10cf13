package github

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/execwarden/execwarden/libs/problem"
)

// What a path or a query is built from is read here, and nothing else builds one (go-github#4150).
var (
	ownerPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,38}$`)
	repoPattern  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
	userPattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,60}(\[bot\])?$`)
	shaPattern   = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	nodePattern  = regexp.MustCompile(`^[A-Za-z0-9_=-]{4,200}$`)
	wordPattern  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)
)

// text reads text of at most limit characters that a check passes.
func text(limit int, check func(string) string) parser[string] {
	return func(name string, raw json.RawMessage) (string, error) {
		var s *string
		if err := json.Unmarshal(raw, &s); err != nil || s == nil {
			return "", problem.New(problem.Invalid, "argument %s has to be text", name)
		}
		if utf8.RuneCountInString(*s) > limit {
			return "", problem.New(problem.TooLarge, "argument %s is over %d characters", name, limit)
		}
		if why := check(*s); why != "" {
			return "", problem.New(problem.Invalid, "argument %s, %.60q, %s", name, *s, why)
		}
		return *s, nil
	}
}

// shaped makes a check of a pattern.
func shaped(p *regexp.Regexp, why string) func(string) string {
	return func(s string) string {
		if p.MatchString(s) {
			return ""
		}
		return why
	}
}

var (
	ownerName = text(39, shaped(ownerPattern, "is not a GitHub account name"))
	repoName  = text(100, func(s string) string {
		if s == "." || s == ".." || !repoPattern.MatchString(s) {
			return "is not a repository name"
		}
		return ""
	})
	userName = text(70, shaped(userPattern, "is not a user name"))
	shaHex   = text(64, shaped(shaPattern, "is not a full SHA in hexadecimal"))
	nodeID   = text(200, shaped(nodePattern, "is not a node id"))
	word     = text(100, shaped(wordPattern, "has other characters than letters, digits, '.', '_' and '-'"))
	refName  = text(255, badRef)
	filePath = text(1024, badPath)
	prose    = text(maxText, anyText)
	filled   = text(maxText, func(s string) string {
		if strings.TrimSpace(s) == "" {
			return "is empty"
		}
		return anyText(s)
	})
	line = text(1024, oneLine)
)

func anyText(s string) string {
	if strings.ContainsRune(s, 0) {
		return "holds a NUL"
	}
	return ""
}

func oneLine(s string) string {
	if strings.IndexFunc(s, unicode.IsControl) >= 0 {
		return "holds control characters"
	}
	return ""
}

// badRef says why s is no name of a branch, a tag or a commit, by git's own rules and one of ours: '#' and '%', which
// git allows, mean something in a URL.
func badRef(s string) string {
	switch {
	case s == "" || s == "@":
		return "is not a branch, tag or commit"
	case strings.HasPrefix(s, "-"):
		return "starts with '-'"
	case strings.Contains(s, "@{"):
		return "holds '@{'"
	case strings.HasSuffix(s, "."):
		return "ends with '.'"
	case strings.ContainsAny(s, " ~^:?*[\\#%") || strings.IndexFunc(s, unicode.IsControl) >= 0:
		return `holds a character that a ref must not: space, control, ~ ^ : ? * [ \ # %`
	case !utf8.ValidString(s) || strings.ContainsRune(s, utf8.RuneError):
		return "is not UTF-8"
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.Contains(part, "..") || strings.HasSuffix(part, ".lock") {
			return "has a part that is empty, starts with '.', holds '..' or ends with '.lock'"
		}
	}
	return ""
}

// badHead is badRef for a head of a pull request, which may name the fork's owner in front.
func badHead(s string) string {
	if owner, branch, ok := strings.Cut(s, ":"); ok {
		if !ownerPattern.MatchString(owner) {
			return "names no account in front of ':'"
		}
		return badRef(branch)
	}
	return badRef(s)
}

// badPath says why s is no path of a file in a repository. A slash at either end is forgiven.
func badPath(s string) string {
	s = trimPath(s)
	if s == "" {
		return ""
	}
	if strings.ContainsAny(s, `\%`) || strings.IndexFunc(s, unicode.IsControl) >= 0 || strings.ContainsRune(s, utf8.RuneError) {
		return `holds a character that a path must not here: control, \, %`
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part == "." || part == ".." || strings.EqualFold(part, ".git") {
			return "has a part that is empty, '.', '..' or '.git'"
		}
	}
	return ""
}

// trimPath takes off the slashes that models put around a path.
func trimPath(s string) string { return strings.TrimSuffix(strings.TrimPrefix(s, "/"), "/") }

// number reads a whole number from least to most, that may come as text (github-mcp-server#2044).
func number[T int | int64](least, most T) parser[T] {
	return func(name string, raw json.RawMessage) (T, error) {
		if len(raw) > 1 && raw[0] == '"' {
			raw = bytes.TrimSpace(raw[1 : len(raw)-1])
		}
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || n < int64(least) || n > int64(most) {
			return 0, problem.New(problem.Invalid, "argument %s has to be a whole number from %d to %d", name, least, most)
		}
		return T(n), nil
	}
}

func boolean(name string, raw json.RawMessage) (bool, error) {
	switch string(raw) {
	case "true", `"true"`:
		return true, nil
	case "false", `"false"`:
		return false, nil
	}
	return false, problem.New(problem.Invalid, "argument %s has to be true or false", name)
}

func moment(name string, raw json.RawMessage) (time.Time, error) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		for _, layout := range []string{time.RFC3339, time.DateOnly} {
			if at, err := time.Parse(layout, s); err == nil {
				return at, nil
			}
		}
	}
	return time.Time{}, problem.New(problem.Invalid, "argument %s has to be a time such as 2026-01-31T12:00:00Z", name)
}

// oneOf reads one of some words.
func oneOf(words ...string) parser[string] {
	return func(name string, raw json.RawMessage) (string, error) {
		var s string
		if err := json.Unmarshal(raw, &s); err != nil || !slices.Contains(words, s) {
			return "", problem.New(problem.Invalid, "argument %s has to be one of %s", name, strings.Join(words, ", "))
		}
		return s, nil
	}
}

// each reads a list, or one value in its place.
func each[T any](most int, one parser[T]) parser[[]T] {
	return func(name string, raw json.RawMessage) ([]T, error) {
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			list = []json.RawMessage{raw}
		}
		if len(list) > most {
			return nil, problem.New(problem.TooLarge, "argument %s has over %d entries", name, most)
		}
		out := make([]T, 0, len(list))
		for i, item := range list {
			v, err := one(fmt.Sprintf("%s[%d]", name, i), item)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	}
}

// readFile reads one entry of files.
func readFile(name string, raw json.RawMessage) (file, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || len(given) != 2 || given["path"] == nil || given["content"] == nil {
		return file{}, problem.New(problem.Invalid, "argument %s has to be an object of path and content, and no more", name)
	}
	path, err := filePath(name+".path", given["path"])
	if err != nil {
		return file{}, err
	}
	content, err := fileText(name+".content", given["content"])
	if path = trimPath(path); path == "" && err == nil {
		err = problem.New(problem.Invalid, "argument %s.path is empty", name)
	}
	return file{path, content}, err
}

// readInputs reads the inputs of a workflow, which are text to GitHub whatever they look like.
func readInputs(name string, raw json.RawMessage) (map[string]string, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || len(given) > 25 {
		return nil, problem.New(problem.Invalid, "argument %s has to be an object of at most 25 texts, numbers or booleans", name)
	}
	out := make(map[string]string, len(given))
	for key, v := range given {
		var s string
		switch {
		case json.Unmarshal(v, &s) == nil:
		case len(v) > 0 && (v[0] == '{' || v[0] == '['):
			return nil, problem.New(problem.Invalid, "argument %s.%.40s has to be text, a number or a boolean", name, key)
		default:
			s = string(v)
		}
		out[key] = s
	}
	return out, nil
}
