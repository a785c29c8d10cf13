// Package rules decides which runs a delivery starts: pure, from the payload's facts and the triggers.
package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/trigger"
)

// Facts is what a trigger may look at, and its prompt's template may use. Text in it was written by whoever caused
// the event.
type Facts struct {
	Event  string // "issues.opened"
	Repo   string // "owner/name"
	Number int    // of the issue or pull request
	Title  string
	Body   string
	URL    string
	Author string // of the issue or pull request
	Sender string // who caused the event
	Bot    bool   // the sender is an app or bot
}

// Size limits of texts in facts, in bytes.
const (
	maxTitle  = 1 << 10
	maxText   = 32 << 10
	maxPrompt = 128 << 10
)

type payload struct {
	Action     string `json:"action"`
	Repository struct {
		FullName string `json:"full_name"`
	} `json:"repository"`
	Issue       *thread `json:"issue"`
	PullRequest *thread `json:"pull_request"`
	Sender      struct {
		Login string `json:"login"`
		Type  string `json:"type"`
	} `json:"sender"`
}

type thread struct {
	Number int    `json:"number"`
	Title  string `json:"title"`
	Body   string `json:"body"`
	URL    string `json:"html_url"`
	User   struct {
		Login string `json:"login"`
	} `json:"user"`
}

// Read takes the facts from a payload. It knows no more of the payload than it needs, so that a payload that GitHub
// changed elsewhere still counts.
func Read(event string, raw []byte) (Facts, error) {
	var p payload
	if err := json.Unmarshal(raw, &p); err != nil {
		return Facts{}, fmt.Errorf("the payload cannot be read: %w", err)
	}
	f := Facts{Event: event, Repo: p.Repository.FullName, Sender: p.Sender.Login, Bot: p.Sender.Type != "User"}
	if p.Action != "" {
		f.Event += "." + p.Action
	}
	t := p.Issue
	if t == nil {
		t = p.PullRequest
	}
	if t != nil {
		f.Number, f.Title, f.URL, f.Author = t.Number, oneLine(clip(t.Title, maxTitle)), t.URL, t.User.Login
		f.Body = clip(t.Body, maxText)
	}
	return f, nil
}

// Matches says whether a trigger fires on facts, or why it does not.
func Matches(t trigger.Defined, f Facts) (ok bool, reason string) {
	switch {
	case t.Removed:
		return false, "the trigger was removed"
	case !slices.Contains(t.Events, f.Event):
		return false, "no trigger is for " + f.Event
	case f.Bot:
		return false, "the sender is a bot"
	case !slices.ContainsFunc(t.Repos, func(r string) bool { return strings.EqualFold(r, f.Repo) }):
		return false, "no trigger is for repository " + f.Repo
	}
	return true, ""
}

// Check says whether a trigger can be used.
func Check(t trigger.Defined) error {
	if len(t.Events) == 0 || len(t.Events) > 50 || len(t.Repos) > 500 {
		return fmt.Errorf("a trigger has 1 to 50 events and at most 500 repositories")
	}
	if len(t.Prompt) > maxPrompt || strings.TrimSpace(t.Prompt) == "" {
		return fmt.Errorf("a trigger's prompt has 1 to %d bytes", maxPrompt)
	}
	_, err := Prompt(t, Facts{})
	return err
}

// Prompt writes the run's prompt.
func Prompt(t trigger.Defined, f Facts) (string, error) {
	tmpl, err := template.New("prompt").Option("missingkey=error").Funcs(refused).Parse(t.Prompt)
	if err == nil && (len(tmpl.Templates()) > 1 || repeats(tmpl.Root)) {
		err = errors.New("range, define, block and template cannot be used")
	}
	if err != nil {
		return "", fmt.Errorf("the trigger's prompt: %w", err)
	}
	var out bytes.Buffer
	if err := tmpl.Execute(&limited{&out, maxPrompt}, f); err != nil {
		return "", fmt.Errorf("the trigger's prompt: %w", err)
	}
	return out.String(), nil
}

// refused are the functions that make texts out of texts: doubled a few dozen times, one would take all memory without
// a byte of output. With repeats, it keeps a template's work within the size of its own text.
var refused = func() template.FuncMap {
	m := template.FuncMap{}
	for _, name := range []string{"print", "printf", "println", "html", "js", "urlquery"} {
		m[name] = func(...any) (string, error) { return "", fmt.Errorf("%s cannot be used", name) }
	}
	return m
}()

// repeats says whether a template may execute a part of itself more than once.
func repeats(n parse.Node) bool {
	switch n := n.(type) {
	case *parse.RangeNode, *parse.TemplateNode:
		return true
	case *parse.IfNode:
		return repeats(n.List) || repeats(n.ElseList)
	case *parse.WithNode:
		return repeats(n.List) || repeats(n.ElseList)
	case *parse.ListNode:
		return n != nil && slices.ContainsFunc(n.Nodes, repeats)
	}
	return false
}

// RunID is the run that a delivery starts by a trigger, always the same.
func RunID(tenant id.Tenant, d id.Delivery, t id.Trigger) id.Run {
	return id.Derive[id.Run](string(tenant), string(d), string(t))
}

// limited fails a template that writes too much.
type limited struct {
	to   *bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, fmt.Errorf("it writes over %d bytes", maxPrompt)
	}
	return l.to.Write(p)
}

// oneLine keeps a text from making lines of its own where one line is meant.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == 0x85 || c == 0x2028 || c == 0x2029 {
			return ' '
		}
		return c
	}, s)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
