package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/volume"
)

// peersFake stands in for the services that the gateway asks: it answers on the bus as their users, and remembers.
type peersFake struct {
	mu        sync.Mutex
	asked     []asked
	recorded  []ask.Event
	approvals []ask.Approval
	next      string // of the first page of approvals
	runs      []ask.RunRow
	upload    string // of the artifact "large"
	away      bool   // the ledger does not answer events
}

// asked is a question that a service got.
type asked struct {
	method string
	who    rpc.Caller
	body   any
}

func newPeers(t *testing.T, b *buskit.Bus) *peersFake {
	t.Helper()
	f := &peersFake{}
	serve := func(service schemas.Service, register func(*rpc.Server) error) {
		srv, err := rpc.NewServer(b.Conn(t, string(service)), service, "0.0.0", b.Log)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(srv.Close)
		if err := register(srv); err != nil {
			t.Fatal(err)
		}
	}
	sequence := ask.Sequence{}
	serve(schemas.Agentloop, func(s *rpc.Server) error {
		return first(
			handle(f, s, "run_start", ask.StartRun{}, func(q ask.StartRun) (ask.Started, error) {
				if q.Agent == "agt_nobody" {
					return ask.Started{}, problem.New(problem.NotFound, "there is no agent %s", q.Agent)
				}
				return ask.Started{Run: "run_1", Seq: 7}, nil
			}),
			handle(f, s, "run_cancel", ask.CancelRun{}, func(ask.CancelRun) (ask.Done, error) { return ask.Done{}, nil }),
			handle(f, s, "keys_rewrap", ask.Rewrap{}, func(ask.Rewrap) (ask.Rewrapped, error) { return ask.Rewrapped{Key: "age:1"}, nil }),
			handle(f, s, "keys_renew", ask.RenewKeys{}, func(ask.RenewKeys) (ask.Rewrapped, error) { return ask.Rewrapped{Key: "age:1"}, nil }),
			handle(f, s, "model_key_set", ask.SetModelKey{}, func(ask.SetModelKey) (ask.Done, error) { return ask.Done{}, nil }),
		)
	})
	serve(schemas.Toolbroker, func(s *rpc.Server) error {
		return first(
			handle(f, s, "connection_define", ask.DefineConnection{}, func(ask.DefineConnection) (ask.Sequence, error) { return sequence, nil }),
			handle(f, s, "login_begin", ask.BeginLogin{}, func(ask.BeginLogin) (ask.LoginBegun, error) {
				return ask.LoginBegun{Attempt: "lgn_1", URL: "https://auth.example.com/authorize"}, nil
			}),
			handle(f, s, "login_look", ask.LookLogin{}, func(q ask.LookLogin) (ask.WaitingLogin, error) {
				if q.State != "tnt_main.con_tickets.secret" {
					return ask.WaitingLogin{}, problem.New(problem.Expired, "this login was finished already")
				}
				return ask.WaitingLogin{Connection: "con_tickets", URL: "https://mcp.example.com/mcp", Issuer: "https://auth.example.com", By: "mem_owner"}, nil
			}),
			handle(f, s, "login_finish", ask.FinishLogin{}, func(q ask.FinishLogin) (ask.FinishedLogin, error) {
				if q.Error != "" {
					return ask.FinishedLogin{}, problem.New(problem.Denied, "the authorization server says access_denied")
				}
				return ask.FinishedLogin{Connection: "con_tickets"}, nil
			}),
		)
	})
	serve(schemas.Runtime, func(s *rpc.Server) error {
		return first(
			handle(f, s, "artifacts_list", ask.ListArtifacts{}, func(q ask.ListArtifacts) (ask.Artifacts, error) {
				return ask.Artifacts{Owner: q.Of, Artifacts: []ask.Artifact{}}, nil
			}),
			handle(f, s, "artifact_get", ask.GetArtifact{}, f.artifact),
		)
	})
	serve(schemas.Webhooks, func(s *rpc.Server) error {
		return first(
			handle(f, s, "trigger_define", ask.DefineTrigger{}, func(ask.DefineTrigger) (ask.Sequence, error) { return sequence, nil }),
			handle(f, s, "hook_define", ask.DefineHook{}, func(ask.DefineHook) (ask.Done, error) { return ask.Done{}, nil }),
		)
	})
	serve(schemas.Environments, func(s *rpc.Server) error {
		return first(
			handle(f, s, "environment_define", ask.DefineEnvironment{}, func(ask.DefineEnvironment) (ask.Sequence, error) { return sequence, nil }),
			handle(f, s, "environment_list", ask.ListEnvironments{}, func(ask.ListEnvironments) (ask.Environments, error) { return ask.Environments{}, nil }),
			handle(f, s, "environment_remove", ask.RemoveEnvironment{}, func(ask.RemoveEnvironment) (ask.InForce, error) { return ask.InForce{}, nil }),
			handle(f, s, "environment_drain", ask.DrainEnvironment{}, func(ask.DrainEnvironment) (ask.Sequence, error) { return sequence, nil }),
			handle(f, s, "enrolment_create", ask.CreateEnrolment{}, func(ask.CreateEnrolment) (ask.Sequence, error) { return sequence, nil }),
			handle(f, s, "output_read", ask.ReadOutput{}, func(ask.ReadOutput) (ask.Output, error) { return ask.Output{Next: 8, Pieces: []ask.OutputPiece{}}, nil }),
			handle(f, s, "volume_attach", ask.Attach{}, func(ask.Attach) (volume.Defined, error) { return volume.Defined{}, nil }),
			handle(f, s, "volume_release", ask.Release{}, func(ask.Release) (ask.Released, error) { return ask.Released{}, nil }),
			handle(f, s, "volume_checkpoint", ask.CheckpointVolume{}, func(ask.CheckpointVolume) (volume.Defined, error) { return volume.Defined{}, nil }),
			handle(f, s, "volume_restore", ask.RestoreVolume{}, func(ask.RestoreVolume) (volume.Defined, error) { return volume.Defined{}, nil }),
			handle(f, s, "volume_clone", ask.CloneVolume{}, func(ask.CloneVolume) (volume.Defined, error) { return volume.Defined{}, nil }),
			handle(f, s, "connector_enrol", ask.EnrolConnector{}, func(q ask.EnrolConnector) (connector.Identity, error) {
				return connector.Identity{Tenant: "tnt_main", Environment: q.Environment, Driver: environment.Host}, nil
			}),
		)
	})
	serve(schemas.Approvals, func(s *rpc.Server) error {
		return first(
			handle(f, s, "grant_create", ask.CreateGrant{}, func(ask.CreateGrant) (ask.Sequence, error) { return sequence, nil }),
			handle(f, s, "grant_revoke", ask.RevokeGrant{}, func(ask.RevokeGrant) (ask.Sequence, error) { return sequence, nil }),
			handle(f, s, "approval_list", ask.ListApprovals{}, f.listApprovals),
			handle(f, s, "approval_decide", ask.DecideApproval{}, f.decide),
			handle(f, s, "target_define", ask.DefineTarget{}, func(q ask.DefineTarget) (ask.DefinedTarget, error) {
				return ask.DefinedTarget{Secret: "whsec_made"}, nil
			}),
			handle(f, s, "target_test", ask.TestTarget{}, func(ask.TestTarget) (ask.Done, error) { return ask.Done{}, nil }),
			handle(f, s, "approval_edit", ask.EditApproval{}, f.edit),
			handle(f, s, "approval_show", ask.ShowApproval{}, func(q ask.ShowApproval) (ask.Approval, error) {
				a, err := f.find(q.Approval)
				if err != nil {
					return ask.Approval{}, err
				}
				return *a, nil
			}),
		)
	})
	serve(schemas.Ledger, func(s *rpc.Server) error {
		return first(
			handle(f, s, "events", ask.Events{}, f.events),
			handle(f, s, "timeline", ask.Timeline{}, f.timeline),
			handle(f, s, "runs", ask.Runs{}, func(ask.Runs) (ask.RunPage, error) { return ask.RunPage{Runs: slices.Clone(f.runs)}, nil }),
			handle(f, s, "position", ask.Position{}, func(ask.Position) (ask.Cursor, error) { return f.position(), nil }),
			handle(f, s, "verify", ask.Verify{}, func(ask.Verify) (ask.Verified, error) { return ask.Verified{Verdict: "verified", Leaves: 3}, nil }),
		)
	})
	return f
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func handle[Q, A any](f *peersFake, s *rpc.Server, method string, _ Q, answer func(Q) (A, error)) error {
	return rpc.Handle(s, method, func(_ context.Context, who rpc.Caller, q Q) (A, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked = append(f.asked, asked{method, who, q})
		return answer(q)
	})
}

// last gives the newest question of a method.
func (f *peersFake) last(method string) (asked, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range slices.Backward(f.asked) {
		if a.method == method {
			return a, true
		}
	}
	return asked{}, false
}

func (f *peersFake) listApprovals(q ask.ListApprovals) (ask.Approvals, error) {
	var out ask.Approvals
	if q.Before != "" {
		return out, nil
	}
	out.Next = f.next
	for _, a := range f.approvals {
		if !q.Open || a.State == "waiting" {
			out.Approvals = append(out.Approvals, a)
		}
	}
	return out, nil
}

func (f *peersFake) find(which id.Approval) (*ask.Approval, error) {
	for i := range f.approvals {
		if f.approvals[i].Approval == which {
			return &f.approvals[i], nil
		}
	}
	return nil, problem.New(problem.NotFound, "there is no approval %s", which)
}

func (f *peersFake) decide(q ask.DecideApproval) (ask.Approval, error) {
	a, err := f.find(q.Approval)
	if err != nil {
		return ask.Approval{}, err
	}
	if a.Digest != q.Digest {
		return ask.Approval{}, problem.New(problem.Conflict, "the decision is about something else")
	}
	a.State = map[bool]string{true: "approved", false: "denied"}[q.Approve]
	return *a, nil
}

func (f *peersFake) edit(q ask.EditApproval) (ask.Approval, error) {
	a, err := f.find(q.Approval)
	if err != nil {
		return ask.Approval{}, err
	}
	if a.Digest != q.Digest {
		return ask.Approval{}, problem.New(problem.Conflict, "the edit is of something else")
	}
	if len(a.Asked) == 0 {
		a.Asked = a.Body.Args
	}
	a.Body.Args, a.Digest, a.Editors = q.Args, a.Digest+"+", []id.Member{"mem_owner"}
	return *a, nil
}

func (f *peersFake) position() (c ask.Cursor) {
	for _, e := range f.recorded {
		if e.Stream == string(schemas.Control) {
			c.Control = e.Seq
		} else {
			c.Activity = e.Seq
		}
	}
	return c
}

func (f *peersFake) events(q ask.Events) (ask.EventPage, error) {
	if f.away {
		return ask.EventPage{}, problem.New(problem.Unavailable, "the ledger rests")
	}
	if q.Limit == 0 {
		q.Limit = 2 // small pages, so that followers have to go on
	}
	page := ask.EventPage{Next: q.After}
	for _, e := range f.recorded {
		next := &page.Next.Activity
		after := q.After.Activity
		if e.Stream == string(schemas.Control) {
			next, after = &page.Next.Control, q.After.Control
		}
		if e.Seq <= after {
			continue
		}
		if len(page.Events) == q.Limit {
			page.More = true
			break
		}
		*next = e.Seq
		var envelope schemas.Envelope
		_ = json.Unmarshal(e.Raw, &envelope) // what cannot be read matches no filter
		kind, _ := path.Match(q.Kind, e.Kind)
		if q.Run != "" && envelope.Run != q.Run || q.Kind != "" && !kind || q.Actor != "" && envelope.Actor != q.Actor {
			continue
		}
		page.Events = append(page.Events, e)
	}
	return page, nil
}

func (f *peersFake) timeline(q ask.Timeline) (ask.EventPage, error) {
	page, err := f.events(ask.Events{Run: q.Run, After: ask.Cursor{Activity: q.After}, Limit: 5})
	if err == nil && q.After == 0 && len(page.Events) == 0 {
		err = problem.New(problem.NotFound, "there is no run %s", q.Run)
	}
	return page, err
}

// record adds an event to what the ledger has, as it would be on the bus.
func (f *peersFake) record(t *testing.T, run id.Run, actor string, ev schemas.Event) {
	t.Helper()
	data, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	entry := schemas.EntryOf(ev)
	seq := uint64(len(f.recorded) + 1)
	at := schemas.SubjectOf("tnt_main", entry.Kind, string(run), "")
	if len(entry.Routes) > 0 {
		at.Route = entry.Routes[0]
	}
	raw, err := json.Marshal(schemas.Envelope{
		SpecVersion: "1.0", ID: id.Event(fmt.Sprintf("evt_%d", seq)), Source: "/test", Type: schemas.TypeOf(entry), Subject: at.Noun + "/" + at.Key,
		Time: time.Date(2026, 11, 30, 12, 0, int(seq), 0, time.UTC), ContentType: "application/json",
		Tenant: "tnt_main", Actor: actor, Run: run, Data: data,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.recorded = append(f.recorded, ask.Event{Stream: string(entry.Stream), Seq: seq, Subject: at.String(), Kind: entry.Kind, Raw: raw, StoredAt: time.Now()})
}

func (f *peersFake) setAway(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

func (f *peersFake) wait(a ask.Approval) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.approvals = append(f.approvals, a)
}

// aWaiting is an approval that waits.
func aWaiting(args string) ask.Approval {
	return ask.Approval{State: "waiting", Requested: approval.Requested{
		Approval: "apr_1", Call: "call_1", Run: "run_1", Agent: "agt_triage", Tool: "github.create_issue_comment", Grant: "grt_comments",
		Digest: "sha256:5f0c3b", Reason: "the grant asks a person for every call", ExpiresAt: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC),
		Body: approval.Shown{Args: json.RawMessage(args)},
	}}
}
