// Package sentence makes the parts of sentences in which the console and the command line both say what an event says.
package sentence

import (
	"fmt"
	"strings"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/artifact"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/notice"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/schemas/script"
)

// Attempt tells a repeated attempt apart from the first, which needs no word.
func Attempt(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(", attempt %d", n)
}

// Because adds a reason where there is one.
func Because(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

// Answered says what a model answered.
func Answered(e run.ModelCompleted) string {
	parts := []string{fmt.Sprintf("step %d:", e.Step)}
	if e.Body.Text != "" {
		parts = append(parts, e.Body.Text)
	}
	for _, c := range e.Body.Calls {
		parts = append(parts, "wants "+c.Tool)
	}
	return strings.Join(parts, " ")
}

// Approved says how long an approval counts.
func Approved(forRun bool) string {
	if forRun {
		return "approved for the rest of the run"
	}
	return "approved"
}

// Asked says which call is asked for, and what it is to be made with.
func Asked(e call.Requested) string {
	text := e.Tool + " " + string(e.Body.Args)
	if len(e.Body.Input) > 0 {
		text += " answering its server " + string(e.Body.Input)
	}
	return text
}

// Admitted says that a call is let through.
func Admitted(e call.Admitted) string {
	text := e.Tool + " is let through, under " + string(e.Grant)
	if e.Edited != 0 {
		text += ", with arguments that a person edited"
	}
	if e.ForRun != "" {
		text += "; so will be calls like it, for the rest of the run"
	}
	return text
}

// Noticed says what became of a notice to approvers, and whether that is well; "" for another event.
func Noticed(ev schemas.Event) (text string, well bool) {
	switch e := ev.(type) {
	case notice.Queued:
		return fmt.Sprintf("%s is to be told: %s", e.Target, e.About), true
	case notice.Retried:
		return fmt.Sprintf("%s was not told%s: %s", e.Target, Attempt(e.Attempt), e.Reason), false
	case notice.Sent:
		return fmt.Sprintf("%s was told: %s%s", e.Target, e.About, Attempt(e.Attempts)), true
	case notice.Failed:
		return Because(fmt.Sprintf("%s is not told: %s", e.Target, e.About), e.Reason), false
	}
	return "", true
}

// Started says that a script starts, and how its worker is isolated.
func Started(e script.Started) string {
	text := "JavaScript starts" + Attempt(e.Attempt)
	if e.Tier != "" {
		text += ", isolation " + e.Tier
	}
	return text
}

// Fetched says what a script fetched.
func Fetched(e script.Fetched) string {
	text := "fetch " + e.Method
	if len(e.Body.Hops) > 0 {
		text += " " + e.Body.Hops[0].URL
	}
	if e.Code != "" {
		return Because(text+": "+e.Code, e.Body.Message)
	}
	return text + fmt.Sprintf(": %d, %d bytes", e.Status, e.Bytes)
}

// Scripted says what a script asked of the tools there are, or kept; "" for another event.
func Scripted(ev schemas.Event) (text string, well bool) {
	switch e := ev.(type) {
	case script.Fetching:
		return "fetch " + e.Method + " " + e.Body.URL + " begins", true
	case script.Searched:
		text := fmt.Sprintf("tools are searched for %q", e.Body.Query)
		if e.Body.Tool != "" {
			text = fmt.Sprintf("tool %q is described", e.Body.Tool)
		}
		return Because(text, e.Body.Message), e.Code == ""
	case artifact.Kept:
		return fmt.Sprintf("artifact %s is kept: %s, %d bytes", e.Name, e.Type, e.Size), true
	case artifact.Removed:
		return "artifact " + e.Name + " is removed", true
	case artifact.Refused:
		return Because("artifact "+e.Name+" is not kept", e.Message), false
	}
	return "", true
}

// Expired says why an approval is over that nobody decided.
func Expired(e approval.Expired) string {
	if e.Reason != "" {
		return "nothing to decide any more: " + e.Reason
	}
	return "nobody decided in time"
}
