package console

import (
	"fmt"
	"strings"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/schemas/script"
)

// The tones in which a line is shown. Each also has its words: colour alone says nothing to many.
const (
	plain = ""
	good  = "good"
	bad   = "bad"
	waits = "waits"
)

// words says in one line what an event says.
func words(ev schemas.Event) (text, tone string) {
	switch e := ev.(type) {
	case run.Created:
		return "asked: " + e.Body.Text, plain
	case run.ModelRequested:
		return fmt.Sprintf("step %d: asks the model", e.Step) + attempt(e.Attempt), plain
	case run.ModelCompleted:
		return answered(e), plain
	case run.ModelFailed:
		return fmt.Sprintf("step %d: the model failed: %s", e.Step, e.Message), bad
	case run.CancelRequested:
		return because("was asked to stop", e.Reason), waits
	case run.Completed:
		return "completed: " + e.Body.Text, good
	case run.Failed:
		return "failed: " + e.Message, bad
	case run.Cancelled:
		return because("cancelled", e.Reason), bad
	case call.Requested:
		return e.Tool + " " + legible(e.Body.Args), plain
	case call.Admitted:
		return e.Tool + " is let through, under " + string(e.Grant), plain
	case call.Held:
		return e.Tool + " waits for a person: " + e.Reason, waits
	case call.Refused:
		return e.Tool + " is refused: " + e.Reason, bad
	case call.Finished:
		if e.ToolError {
			return e.Tool + " answered with an error: " + legible(e.Body.Result), bad
		}
		return e.Tool + " answered: " + legible(e.Body.Result), good
	case call.Failed:
		return e.Tool + " failed: " + e.Message, bad
	case call.Cancelled:
		return because(e.Tool+" was stopped before it had an effect", e.Reason), bad
	case call.Unknown:
		return e.Tool + " may or may not have had its effect: " + e.Message, waits
	case call.Late:
		return e.Tool + " answered after its outcome was decided", waits
	case approval.Requested:
		return e.Tool + " asks for approval: " + e.Reason, waits
	case approval.Voted:
		return because(string(e.By)+" approves, and more have to", e.Body.Note), waits
	case approval.Decided:
		if e.Approved {
			return because("approved by "+string(e.By), e.Body.Note), good
		}
		return because("denied by "+string(e.By), e.Body.Note), bad
	case approval.Expired:
		return "nobody decided in time", bad
	case script.Started:
		return fmt.Sprintf("JavaScript starts%s", attempt(e.Attempt)), plain
	case script.Fetched:
		return fetched(e), plain
	}
	return "", plain
}

func attempt(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(", attempt %d", n)
}

func because(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

func answered(e run.ModelCompleted) string {
	parts := []string{fmt.Sprintf("step %d:", e.Step)}
	if e.Body.Text != "" {
		parts = append(parts, e.Body.Text)
	}
	for _, c := range e.Body.Calls {
		parts = append(parts, "wants "+c.Tool)
	}
	return strings.Join(parts, " ")
}

func fetched(e script.Fetched) string {
	url := ""
	if len(e.Body.Hops) > 0 {
		url = " " + e.Body.Hops[0].URL
	}
	if e.Code != "" {
		return fmt.Sprintf("fetch %s%s: %s", e.Method, url, e.Code)
	}
	return fmt.Sprintf("fetch %s%s: %d, %d bytes", e.Method, url, e.Status, e.Bytes)
}
