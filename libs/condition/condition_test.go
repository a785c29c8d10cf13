package condition_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/condition"
	"github.com/execwarden/execwarden/libs/problem"
)

func TestHolds(t *testing.T) {
	call := condition.Call{Agent: "triage", Tool: "github.add_issue_comment", Run: "run_1", Tainted: true,
		Args:  json.RawMessage(`{"repo":"shop","n":3,"labels":["bug"],"nested":{"a":true}}`),
		Input: json.RawMessage(`{"inputResponses":{"it":{"action":"accept","content":{"name":"ada"}}},"requestState":"s"}`),
		Now:   time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)}
	for text, want := range map[string]bool{
		`args.repo == "shop"`:      true,
		`args.n < 3`:               false,
		`args.n <= 3.0`:            true,
		`"bug" in args.labels`:     true,
		`has(args.missing)`:        false,
		`args.nested.a && tainted`: true,
		`tool.startsWith("github.") && agent == "triage"`:                         true,
		`now.getHours() >= 9 && now.getHours() < 17`:                              true,
		`args.repo.matches("^sh")`:                                                true,
		`input.inputResponses.it.content.name == "ada"`:                           true,
		`input.inputResponses.all(k, input.inputResponses[k].action == "accept")`: true,
		`has(input.inputResponses.other)`:                                         false,
		`input.requestState == "s"`:                                               true,
	} {
		c, err := condition.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := c.Holds(call); err != nil || got != want {
			t.Errorf("%s is %v (%v), want %v", text, got, err, want)
		}
	}
}

// A call that answers nothing has an empty input, also after one that did.
func TestNoInput(t *testing.T) {
	has, err := condition.Parse(`has(input.requestState)`)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := has.Holds(condition.Call{Args: json.RawMessage(`{}`), Input: json.RawMessage(`{"requestState":"s"}`)}); err != nil || !got {
			t.Error(got, err)
		}
		if got, err := has.Holds(condition.Call{Args: json.RawMessage(`{}`)}); err != nil || got {
			t.Error(got, err)
		}
	}
	if got, err := has.Holds(condition.Call{Args: json.RawMessage(`{}`), Input: json.RawMessage(`[]`)}); err == nil || got {
		t.Error(got, err)
	}
}

func TestRefused(t *testing.T) {
	for name, text := range map[string]string{
		"syntax":            `args.repo ==`,
		"unknown variable":  `secret == "x"`,
		"not a truth value": `args.repo + "x"`,
		"number":            `1`,
		"wrong types":       `tainted == "yes"`,
		"too long":          `true || ` + strings.Repeat("true || ", 1000) + `true`,
		"nul":               "tool == \"\x00",
	} {
		if _, err := condition.Parse(text); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

func TestWhatCannotBeEvaluatedDoesNotHold(t *testing.T) {
	long, err := json.Marshal(map[string]any{"list": make([]int, 3000), "text": strings.Repeat("a", 200_000)})
	if err != nil {
		t.Fatal(err)
	}
	for text, args := range map[string]json.RawMessage{
		`args.missing == "x"`: json.RawMessage(`{}`),
		`args.n > 3`:          json.RawMessage(`{"n":"three"}`),
		`args.n == 1`:         json.RawMessage(`[]`),
		`args.list.all(x, args.list.all(y, args.list.all(z, x == y && y == z)))`: long,
	} {
		c, err := condition.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if holds, err := c.Holds(condition.Call{Args: args}); holds || err == nil {
			t.Errorf("%s: %v, %v", text, holds, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`args.repo == "shop" && now.getHours() < 17`, `{"repo":"shop"}`)
	f.Fuzz(func(t *testing.T, text, args string) {
		c, err := condition.Parse(text)
		if err != nil {
			return
		}
		if holds, err := c.Holds(condition.Call{Args: json.RawMessage(args)}); holds && err != nil {
			t.Error("holds, with an error")
		}
	})
}
