package console

import (
	"fmt"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/sentence"
	"github.com/execwarden/execwarden/libs/unseen"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/artifact"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/notice"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/schemas/script"
	"github.com/execwarden/execwarden/schemas/visit"
	"github.com/execwarden/execwarden/services/gateway/internal/control"
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
		if e.Body.Script != "" {
			return "a person's script " + e.Body.Text, plain
		}
		return "asked: " + e.Body.Text, plain
	case run.ModelRequested:
		return fmt.Sprintf("step %d: asks the model", e.Step) + sentence.Attempt(e.Attempt), plain
	case run.ModelCompleted:
		return sentence.Answered(e), plain
	case run.ModelFailed:
		return fmt.Sprintf("step %d: the model failed: %s", e.Step, e.Message), bad
	case run.CancelRequested:
		return sentence.Because("was asked to stop", e.Reason), waits
	case run.Completed:
		return "completed: " + e.Body.Text, good
	case run.Failed:
		return "failed: " + e.Message, bad
	case run.Cancelled:
		return sentence.Because("cancelled", e.Reason), bad
	case call.Requested:
		return unseen.Legible([]byte(sentence.Asked(e))), plain
	case call.Admitted:
		return sentence.Admitted(e), plain
	case call.Held:
		return e.Tool + " waits for a person: " + e.Reason, waits
	case call.Refused:
		return e.Tool + " is refused: " + e.Reason, bad
	case call.Finished:
		if e.ToolError {
			return e.Tool + " answered with an error: " + unseen.Legible(e.Body.Result), bad
		}
		return e.Tool + " answered: " + unseen.Legible(e.Body.Result), good
	case call.Failed:
		return e.Tool + " failed: " + e.Message, bad
	case call.Cancelled:
		return sentence.Because(e.Tool+" was stopped before it had an effect", e.Reason), bad
	case call.Unknown:
		return e.Tool + " may or may not have had its effect: " + e.Message, waits
	case call.Late:
		return e.Tool + " answered after its outcome was decided", waits
	case approval.Requested:
		return e.Tool + " asks for approval: " + e.Reason, waits
	case approval.Edited:
		return sentence.Because(string(e.By)+" edits the arguments", unseen.Legible(e.Body.Args)), waits
	case approval.Escalated:
		return "nobody decided yet; more people are told", waits
	case approval.Voted:
		return sentence.Because(string(e.By)+" approves, and more have to", e.Body.Note), waits
	case approval.Decided:
		if e.Approved {
			return sentence.Because(sentence.Approved(e.ForRun)+" by "+string(e.By), e.Body.Note), good
		}
		return sentence.Because("denied by "+string(e.By), e.Body.Note), bad
	case approval.Expired:
		return sentence.Expired(e), bad
	case notice.Queued, notice.Retried, notice.Sent, notice.Failed:
		text, well := sentence.Noticed(e)
		if !well {
			return text, bad
		}
		return text, plain
	case visit.Admitted:
		return sentence.Visited(e), good
	case visit.Ended:
		return sentence.Left(e), plain
	case script.Started:
		return sentence.Started(e), plain
	case script.Fetched:
		return sentence.Fetched(e), plain
	case script.Fetching, script.Searched, artifact.Kept, artifact.Removed, artifact.Refused:
		text, well := sentence.Scripted(e)
		if !well {
			return text, bad
		}
		return text, plain
	}
	return "", plain
}

// grantWords says in one line what a grant lets an agent do.
func grantWords(g control.Grant) string {
	text := "may call "
	if g.Verdict == grant.Deny {
		text = "may never call "
	}
	text += g.Selector.Tool
	for _, part := range []struct {
		word string
		of   []string
	}{{" by ", g.Selector.Methods}, {" in ", g.Selector.Repos}, {" at ", g.Selector.URIs}} {
		if len(part.of) > 0 {
			text += part.word + strings.Join(part.of, ", ")
		}
	}
	for _, effect := range g.Selector.Effects {
		text += ", of effect " + string(effect)
	}
	if g.Condition != "" {
		text += ", if " + g.Condition
	}
	switch {
	case g.Verdict == grant.Deny:
	case g.Approval == grant.FirstPerRun:
		text += "; a person approves the first call of each run"
	case g.Approval == grant.When:
		text += "; a person approves each call for which " + g.ApproveWhen
	case g.Approval != "" && g.Approval != grant.Never:
		text += "; a person approves each call"
	}
	if !g.ExpiresAt.IsZero() {
		text += ", until " + g.ExpiresAt.UTC().Format(time.DateOnly)
	}
	return text
}
