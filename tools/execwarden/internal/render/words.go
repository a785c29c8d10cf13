package render

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/sentence"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/artifact"
	"github.com/execwarden/execwarden/schemas/call"
	oauthclient "github.com/execwarden/execwarden/schemas/client"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/hook"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/key"
	"github.com/execwarden/execwarden/schemas/ledger"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/notice"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/schemas/script"
	"github.com/execwarden/execwarden/schemas/session"
	"github.com/execwarden/execwarden/schemas/target"
	"github.com/execwarden/execwarden/schemas/tenant"
	"github.com/execwarden/execwarden/schemas/token"
	"github.com/execwarden/execwarden/schemas/trigger"
	"github.com/execwarden/execwarden/schemas/visit"
	"github.com/execwarden/execwarden/schemas/volume"
)

// words says in a few words what an event says. A kind that this program does not know stands for itself: a newer
// service's event is no fault.
func words(e schemas.Envelope) (string, Tone) {
	ev, err := e.Decode()
	switch {
	case errors.Is(err, schemas.ErrUnknownKind):
		return "(a kind that this version does not know) " + string(e.Data), Plain
	case err != nil:
		return "its data cannot be read: " + err.Error(), Bad
	}
	text, tone := configured(ev)
	if text == "" {
		text, tone = happened(ev)
	}
	if e.BodyBlob != "" {
		text += fmt.Sprintf(" (its body is large and kept apart, as %.12s…)", e.BodyBlob)
	}
	return text, tone
}

// whose names the holder of a token.
func whose(a id.Agent, m id.Member) string {
	if a != "" {
		return string(a)
	}
	return string(m)
}

// configured says what was set up: the kinds of EW_CONTROL and EW_PROOFS.
func configured(ev schemas.Event) (string, Tone) {
	switch e := ev.(type) {
	case tenant.Created:
		return fmt.Sprintf("tenant %s, named %s", e.Tenant, e.Name), Plain
	case member.Added:
		return fmt.Sprintf("%s is %s", e.Member, e.Role), Plain
	case member.Removed:
		return sentence.Because(fmt.Sprintf("%s is not a member any more, and %s stopped", e.Member, Count(len(e.Tokens), "token")), e.Reason), Bad
	case token.Revoked:
		return sentence.Because(fmt.Sprintf("%s of %s is revoked", e.Token, whose(e.Agent, e.Member)), e.Reason), Bad
	case token.Tainted:
		return fmt.Sprintf("what %s does by %s is tainted by %s", e.Agent, e.Token, strings.Join(e.Taint, ", ")), Plain
	case token.Issued:
		return fmt.Sprintf("%s for %s, fingerprint %s", e.Token, whose(e.Agent, e.Member), e.Fingerprint) + until(e.ExpiresAt), Plain
	case key.Published:
		return fmt.Sprintf("%s, for %s", e.Key, e.Purpose), Plain
	case agent.Defined:
		return removed(fmt.Sprintf("%s, %s", e.Agent, e.Hosting), e.Removed), Plain
	case connection.Defined:
		return removed(fmt.Sprintf("%s, %s at %s", e.Connection, e.Type, e.URL), e.Removed), Plain
	case connection.Packaged:
		return fmt.Sprintf("%s: package %s %s, %d operations", e.Connection, e.Name, e.Version, e.Operations), Plain
	case connection.LoginChanged:
		who := string(e.Connection)
		if e.Agent != "" {
			who = fmt.Sprintf("%s on %s", e.Agent, e.Connection)
		}
		switch {
		case e.Failed:
			return sentence.Because(fmt.Sprintf("a login of %s failed", who), e.Reason), Bad
		case e.State == connection.LoginNeeded:
			return sentence.Because(fmt.Sprintf("%s needs a login", who), e.Reason), Waits
		}
		return fmt.Sprintf("%s is logged in at %s", who, e.Issuer), Good
	case oauthclient.Defined:
		if e.Removed {
			return fmt.Sprintf("%s is removed, with what it was given", e.Client), Bad
		}
		text := fmt.Sprintf("%s, named %s", e.Client, e.Name)
		if e.Agent != "" {
			text += fmt.Sprintf(", gets tokens of %s", e.Agent)
		}
		return text, Plain
	case connection.Listed:
		return fmt.Sprintf("%s has %s", e.Connection, Count(len(e.Body.Tools), "tool")), Plain
	case grant.Created:
		return fmt.Sprintf("%s lets %s call %s, approval %s", e.Grant, e.Agent, e.Selector.Tool, e.Approval) + until(e.ExpiresAt), Good
	case grant.Revoked:
		return sentence.Because(fmt.Sprintf("%s of %s is revoked", e.Grant, e.Agent), e.Reason), Bad
	case trigger.Defined:
		return removed(fmt.Sprintf("%s starts %s on %s", e.Trigger, e.Agent, strings.Join(e.Events, ", ")), e.Removed), Plain
	case target.Defined:
		return removed(fmt.Sprintf("%s, %s, is told of %v", e.Target, e.Type, e.About), e.Removed), Plain
	case environment.Registered:
		text := fmt.Sprintf("%s, driver %s", e.Environment, e.Driver)
		switch {
		case e.Connector != nil:
			text += ", a machine is enrolled"
		case e.Enrolment != nil:
			text += ", a machine may enrol" + until(e.Enrolment.ExpiresAt)
		}
		return removed(text, e.Removed), Plain
	case connector.Welcomed:
		return fmt.Sprintf("%s is connected by %s, version %s, on %s", e.Environment, e.Instance, e.Version, e.Manifest.Platform), Good
	case volume.Defined:
		return removed(ofVolume(e)), Plain
	case session.Opened:
		return fmt.Sprintf("%s of %s", e.Session, e.Agent), Plain
	case ledger.Checkpointed:
		return fmt.Sprintf("%s: %s, root %s", e.Stream, Count(int(e.Size), "leaf"), e.Root), Plain
	}
	return "", Plain
}

// ofVolume says who holds a volume, or how its last attachment ended.
func ofVolume(v volume.Defined) (string, bool) {
	text := fmt.Sprintf("volume %s of %s", v.Name, v.Environment)
	switch {
	case v.Attached != nil:
		h := v.Attached.Holder
		return fmt.Sprintf("%s is attached to %s%s%s", text, h.Agent, h.Session, h.Run), v.Removed
	case v.Ended != nil:
		return sentence.Because(fmt.Sprintf("%s is free: the attachment was %s", text, v.Ended.How), v.Ended.Reason), v.Removed
	}
	return text, v.Removed
}

// happened says what happened: the kinds of EW_ACTIVITY.
func happened(ev schemas.Event) (string, Tone) {
	switch e := ev.(type) {
	case hook.Received:
		return fmt.Sprintf("%s: %s, %d bytes", e.Hook, e.Event, len(e.Body.Payload)), Plain
	case hook.Routed:
		return fmt.Sprintf("%s started %s", e.Delivery, Count(len(e.Runs), "run")), Good
	case hook.Ignored:
		return sentence.Because(fmt.Sprintf("%s started nothing", e.Delivery), e.Reason), Plain
	case run.Created:
		if e.Body.Script != "" {
			return fmt.Sprintf("%s is to run a person's script %s", e.Agent.Agent, e.Body.Text), Plain
		}
		return fmt.Sprintf("%s is asked: %s", e.Agent.Agent, e.Body.Text), Plain
	case run.ModelRequested:
		return fmt.Sprintf("step %d asks the model", e.Step) + sentence.Attempt(e.Attempt), Plain
	case run.ModelCompleted:
		return sentence.Answered(e), Plain
	case run.ModelFailed:
		return fmt.Sprintf("step %d: the model failed: %s", e.Step, e.Message), Bad
	case run.CancelRequested:
		return sentence.Because("is asked to stop", e.Reason), Waits
	case run.Completed:
		return "completed: " + e.Body.Text, Good
	case run.Failed:
		return fmt.Sprintf("failed: %s: %s", e.Code, e.Message), Bad
	case run.Cancelled:
		return sentence.Because("cancelled", e.Reason), Bad
	case approval.Requested:
		return sentence.Because(fmt.Sprintf("%s: %s waits for a person", e.Approval, e.Tool), e.Reason), Waits
	case approval.Edited:
		return sentence.Because(fmt.Sprintf("%s: %s edits the arguments", e.Approval, e.By), string(e.Body.Args)), Waits
	case approval.Escalated:
		return fmt.Sprintf("%s: nobody decided yet; more people are told", e.Approval), Waits
	case approval.Voted:
		return sentence.Because(fmt.Sprintf("%s: %s approves, and more have to", e.Approval, e.By), e.Body.Note), Waits
	case approval.Decided:
		if e.Approved {
			return sentence.Because(fmt.Sprintf("%s %s by %s", e.Approval, sentence.Approved(e.ForRun), e.By), e.Body.Note), Good
		}
		return sentence.Because(fmt.Sprintf("%s denied by %s", e.Approval, e.By), e.Body.Note), Bad
	case approval.Expired:
		return fmt.Sprintf("%s: %s", e.Approval, sentence.Expired(e)), Bad
	case notice.Queued, notice.Retried, notice.Sent, notice.Failed:
		text, well := sentence.Noticed(e)
		if !well {
			return text, Bad
		}
		return text, Plain
	case visit.Admitted:
		return sentence.Visited(e), Good
	case visit.Ended:
		return sentence.Left(e), Plain
	case script.Started:
		return sentence.Started(e), Plain
	case script.Fetched:
		return sentence.Fetched(e), Plain
	case script.Fetching, script.Searched, artifact.Kept, artifact.Removed, artifact.Refused:
		text, well := sentence.Scripted(e)
		if !well {
			return text, Bad
		}
		return text, Plain
	}
	return called(ev)
}

// called says what became of a tool call.
func called(ev schemas.Event) (string, Tone) {
	switch e := ev.(type) {
	case call.Requested:
		return sentence.Asked(e), Plain
	case call.Admitted:
		return sentence.Admitted(e), Plain
	case call.Held:
		return sentence.Because(e.Tool+" is held", e.Reason), Waits
	case call.Refused:
		return sentence.Because(e.Tool+" is refused", e.Reason), Bad
	case call.Finished:
		if e.ToolError {
			return e.Tool + " answered with an error: " + string(e.Body.Result), Bad
		}
		return e.Tool + " answered: " + string(e.Body.Result), Good
	case call.Failed:
		return fmt.Sprintf("%s failed: %s", e.Tool, e.Message), Bad
	case call.Cancelled:
		return sentence.Because(e.Tool+" was stopped before it had an effect", e.Reason), Bad
	case call.Unknown:
		return sentence.Because(e.Tool+" may or may not have had its effect", e.Message), Waits
	case call.Asked:
		if e.Refused != "" {
			return sentence.Because(e.Tool+"'s server was not let ask "+e.Method, e.Refused), Bad
		}
		return e.Tool + "'s server asks the client: " + e.Method, Waits
	case call.Answered:
		if e.Code != "" {
			return e.Tool + "'s server got no answer from the client: " + e.Code, Bad
		}
		return "the client answered " + e.Tool + "'s server", Plain
	case call.Late:
		return e.Tool + " answered after its outcome was decided", Waits
	}
	return "", Plain
}

func removed(what string, gone bool) string {
	if gone {
		return what + " (removed)"
	}
	return what
}

func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", until " + Stamp(t)
}

// Count says how many of a thing there are.
func Count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case noun == "leaf":
		return fmt.Sprintf("%d leaves", n)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
