package schemas_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/artifact"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/client"
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

// update makes goldens that are missing. It never writes over one: what was released stays readable.
var update = flag.Bool("update", false, "make missing goldens in testdata")

const (
	tenantA  = id.Tenant("tnt_main")
	runA     = id.Run("run_01939a5b2c7d7e8f9a0b1c2d3e4f5a6b")
	callA    = id.Call("call_5f0c1b2a3d4e8f60a1b2c3d4e5f60718")
	sessionA = id.Session("ses_7a1b2c3d4e5f8a6b8c9d0e1f2a3b4c5d")
	approveA = id.Approval("apr_2b3c4d5e6f708192a3b4c5d6e7f80910")
	noticeA  = id.Notice("ntc_3c4d5e6f708192a3b4c5d6e7f8091021")
	digestA  = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

var (
	at     = time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)
	triage = agent.Defined{
		MCP:   agent.MCP{Tools: agent.Lazy},
		Agent: "agt_triage", Hosting: agent.Hosted, Removed: true, Body: agent.Body{Instructions: "Triage new issues."},
		Model:   agent.Model{Protocol: "openai", URL: "https://models.example.com/v1", Name: "example-large", MaxOutputTokens: 4096, Private: []string{"10.1.2.3:8443"}},
		Runtime: agent.Runtime{Enabled: true, Egress: []agent.Egress{{Hosts: []string{"status.example.com"}, Methods: []string{"GET"}, Private: []string{"10.1.2.4:443"}, ResponseBytes: 1 << 20, RequestBytes: 1 << 10, TimeoutMS: 5000, Fetches: 5}}},
		Budgets: agent.Budgets{Steps: 20, Calls: 40, Tokens: 200_000},
	}
	args   = json.RawMessage(`{"owner":"acme","repo":"shop","issue_number":7,"body":"On it."}`)
	result = json.RawMessage(`{"id":42,"author":"triage-bot","body":"On it.","url":"https://github.com/acme/shop/issues/7#issuecomment-42"}`)
)

// samples has each kind of event with every field set, so that no field can be renamed without a golden saying so.
var samples = []struct {
	key   string
	route call.Route
	event schemas.Event
}{
	{"tnt_main", "", tenant.Created{Tenant: tenantA, Name: "Main"}},
	{"mem_owner", "", member.Added{Member: "mem_owner", Role: member.Owner}},
	{"mem_owner", "", member.Removed{Member: "mem_owner", Reason: "left", Tokens: []id.Token{"tok_1a2b3c"}}},
	{"tok_1a2b3c", "", token.Revoked{Token: "tok_1a2b3c", Member: "mem_owner", Agent: "agt_laptop", Reason: "lost"}},
	{"tok_1a2b3c", "", token.Tainted{Token: "tok_1a2b3c", Agent: "agt_laptop", Taint: []string{"con_tickets", "con_web"}}},
	{"tok_1a2b3c", "", token.Issued{Token: "tok_1a2b3c", Member: "mem_owner", Role: member.Admin, Agent: "agt_laptop", Client: "cli_editor", Resource: "https://warden.example.com/mcp", Fingerprint: "9f86d081884c", ExpiresAt: at.AddDate(0, 1, 0)}},
	{"key_1a2b3c", "", key.Published{Key: "key_1a2b3c", Purpose: "permit", Public: []byte("0123456789abcdef0123456789abcdef"), NotBefore: at, Signature: bytes.Repeat([]byte{7}, 64)}},
	{"agt_triage", "", triage},
	{"cli_editor", "", client.Defined{Client: "cli_editor", Name: "Editor", URL: "https://editor.example.com/client.json", Redirects: []string{"http://127.0.0.1/callback"}, Agent: "agt_laptop", Fingerprint: "9f86d081884c", Removed: true}},
	{"con_github", "", connection.Defined{Connection: "con_github", Type: connection.GitHub, URL: "https://api.github.com", GitURL: "https://github.com", Private: []string{"10.1.2.5:443"}, Hosts: []string{"*.blob.core.windows.net"}, Trusted: true,
		OAuth: connection.OAuth{Flow: connection.AuthorizationCode, ClientID: "execwarden", Scopes: []string{"issues:read"}, PerAgent: true}, Credential: "9f86d081884c", Removed: true}},
	{"con_tickets", "", connection.LoginChanged{Connection: "con_tickets", Agent: "agt_laptop", URL: "https://mcp.example.com/mcp", OAuth: connection.OAuth{Flow: connection.AuthorizationCode, ClientID: "execwarden", Scopes: []string{"issues:read"}, PerAgent: true}, State: connection.LoginNeeded, Attempt: "lgn_1a2b3c", Reason: "the authorization server refused to renew the token", Failed: true, By: "mem_owner", Issuer: "https://auth.example.com", Scopes: []string{"issues:read"}}},
	{"con_petstore", "", connection.Packaged{Connection: "con_petstore", Name: "petstore", Version: "1.0.0", Digest: digestA, Operations: 3, Body: connection.Package{Package: json.RawMessage(`{"name":"petstore"}`)}}},
	{"con_github", "", connection.Listed{Connection: "con_github", Body: connection.Tools{Tools: []connection.Tool{{Name: "add_issue_comment", Description: "Add a comment.", Schema: json.RawMessage(`{"type":"object"}`), Effect: connection.Probeable, Writes: true, Lent: true, More: json.RawMessage(`{"title":"Comment"}`), ChangedAt: at}}}}},
	{"grt_comment", "", grant.Created{Grant: "grt_comment", Agent: "agt_triage", Run: runA, Verdict: grant.Allow, Condition: "size(args.body) < 1000",
		Selector: grant.Selector{Tool: "github.add_issue_comment", Methods: []string{"create"}, Effects: []connection.Effect{connection.Probeable}, Repos: []string{"acme/shop"}, URIs: []string{"docs://shop/*"}},
		Approval: grant.When, ApproveWhen: "args.issue_number > 5", Quorum: 2, Approver: member.Admin, FourEyes: true, EscalateAfter: 1800, Limits: grant.Limits{Calls: 1000, PerRun: 5, PerMinute: 10, AtOnce: 4}, Tainted: true, ExpiresAt: at.AddDate(0, 0, 7)}},
	{"grt_comment", "", grant.Revoked{Grant: "grt_comment", Agent: "agt_triage", Reason: "no longer needed"}},
	{"trg_triage", "", trigger.Defined{Trigger: "trg_triage", Hook: "hook_github", Events: []string{"issues.opened"}, Repos: []string{"acme/shop"}, Agent: "agt_triage", Prompt: "Triage {{.Title}}", Removed: true}},
	{"env_builder", "", environment.Registered{Environment: "env_builder", Driver: environment.Docker, Draining: true, Removed: true,
		Enrolment: &environment.Enrolment{Digest: digestA, ExpiresAt: at.Add(15 * time.Minute)},
		Connector: &environment.Enrolled{NKey: "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4", Token: digestA, At: at}}},
	{"env_builder", "", connector.Welcomed{Environment: "env_builder", Instance: "i1", Store: "s1", Version: "1.0.0", Manifest: environment.Manifest{
		Policy: digestA, Platform: "linux/amd64", Shell: true, Network: "targets", Roots: []environment.Root{{Path: "/srv/data", Write: true}}, Programs: []string{"/usr/bin/git"}, Preview: []string{"3000-3999"}, Browser: true, Images: []string{"postgres:17"},
		PrivateHTTP: []string{"tickets.internal:8080 GET,HEAD"}, Targets: []string{"db.internal:5432"}, Execs: 4, Volumes: 8, Isolation: environment.Isolation{NoNewPrivs: true, Landlock: 7, Seccomp: true, Cgroup: true, Network: true, Container: true}}}},
	{"vol_0a1b2c3d4e5f8a6b8c9d0e1f2a3b4c5d", "", volume.Defined{Volume: "vol_0a1b2c3d4e5f8a6b8c9d0e1f2a3b4c5d", Environment: "env_builder", Name: "main", Epoch: 2,
		Attached:   &volume.Attachment{Attachment: "att_1b2c3d4e5f6a8b7c8d9e0f1a2b3c4d5e", Holder: volume.Holder{Agent: "agt_triage", Session: sessionA, Run: runA}, Since: at, Draining: true},
		Ended:      &volume.End{Attachment: "att_2c3d4e5f6a7b8c8d9e0f1a2b3c4d5e6f", How: volume.Revoked, At: at, Reason: "done with it", Survivors: 1},
		Generation: 7, Checkpoints: []volume.Checkpoint{{Generation: 6, Manifest: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", Files: 12, Bytes: 3456, Skipped: 1, At: at}},
		Restored: &volume.Restored{Generation: 6, At: at}, From: "base", Removed: true}},
	{"tgt_oncall", "", target.Defined{Target: "tgt_oncall", Type: target.Webhook, Host: "hooks.example.com", About: target.Abouts(), Arguments: true, Private: []string{"10.1.2.6:443"}, Fingerprint: "9f86d081884c", Removed: true}},
	{string(sessionA), "", session.Opened{Session: sessionA, Agent: "agt_triage"}},

	{"dlv_3c4d5e", "", hook.Received{Delivery: "dlv_3c4d5e", Hook: "hook_github", GUID: "72d3162e-cc78-11e3-81ab-4c9367dc0958", Event: "issues", Body: hook.Payload{Payload: []byte(`{"action":"opened"}`)}}},
	{"dlv_3c4d5e", "", hook.Routed{Delivery: "dlv_3c4d5e", Runs: []id.Run{runA}}},
	{"dlv_3c4d5e", "", hook.Ignored{Delivery: "dlv_3c4d5e", Reason: "the sender is a bot"}},

	{string(runA), "", run.Created{Run: runA, Session: sessionA, Agent: triage, Trigger: "trg_triage", Hook: "dlv_3c4d5e", Taint: []string{"hook_github"}, Body: run.Prompt{Script: "return 1", Input: json.RawMessage(`{"a":1}`), Text: "Triage issue 7."}}},
	{string(runA), "", run.ModelRequested{Run: runA, Step: 1, Attempt: 2, Digest: digestA, NotBefore: at.Add(2 * time.Second)}},
	{string(runA), "", run.ModelCompleted{Run: runA, Step: 1, InputTokens: 812, OutputTokens: 64, Body: run.Answer{Text: "I will comment.", Raw: json.RawMessage(`[{"type":"thinking","signature":"c2ln"}]`),
		Calls: []run.ToolUse{{ID: "toolu_1", Call: callA, Tool: "github.add_issue_comment", Args: args, Via: "github.call_operation"}}}}},
	{string(runA), "", run.ModelFailed{Run: runA, Step: 1, Attempt: 1, Code: "busy", Message: "the provider limits the rate", Retryable: true, RetryAfter: 2000}},
	{string(runA), "", run.CancelRequested{Run: runA, Reason: "wrong issue"}},
	{string(runA), "", run.Completed{Run: runA, Steps: 2, Calls: 1, Tokens: 1500, Body: run.Result{Text: "Commented."}}},
	{string(runA), "", run.Failed{Run: runA, Code: "budget_exhausted", Message: "the run's 20 steps are used up"}},
	{string(runA), "", run.Cancelled{Run: runA, Reason: "wrong issue"}},

	{string(runA), "", call.Requested{Call: callA, Run: runA, Agent: "agt_triage", Tool: "github.add_issue_comment", ArgsDigest: digestA, Effect: string(callA), Parent: "call_00ff", NotAfter: at.Add(time.Minute), Taint: []string{"hook_github"}, Hint: "ew.hint.v1.runtime.0." + string(callA),
		Client: &call.Client{Protocol: "2026-07-28", Capabilities: json.RawMessage(`{"elicitation":{"url":{}}}`), LogLevel: "info"}, Body: call.Args{Args: args, Input: json.RawMessage(`{"requestState":"s"}`)}}},
	{string(runA), "", call.Held{Call: callA, Run: runA, Agent: "agt_triage", Tool: "github.add_issue_comment", Grant: "grt_comment", Lent: call.Lent{Tool: "github.git_push", Grant: "grt_push"}, Digest: digestA, Reason: "the grant holds every call for approval", Quorum: 2, Approver: member.Admin, FourEyes: true, EscalateAfter: 1800, Requested: 41, Control: 12}},
	{string(runA), call.Upstream, call.Admitted{Call: callA, Run: runA, Tool: "github.add_issue_comment", Route: call.Upstream, Grant: "grt_comment", Lent: call.Lent{Tool: "github.git_push", Grant: "grt_push"}, Approval: approveA, Requested: 41, Control: 12, Permit: "key_1a2b3c.eyJhdWQiOiJ1cHN0cmVhbSJ9.c2ln", Edited: 44, ForRun: digestA, Body: call.Args{Args: args, Input: json.RawMessage(`{"requestState":"s"}`)}}},
	{string(runA), "", call.Asked{Call: callA, Run: runA, Tool: "tickets.close", Ask: 1, Method: "elicitation/create", Refused: "no grant lets this server ask", Body: call.Question{Params: json.RawMessage(`{"message":"Sure?"}`)}}},
	{string(runA), "", call.Answered{Call: callA, Run: runA, Tool: "tickets.close", Ask: 1, Code: "unavailable", Body: call.Reply{Result: json.RawMessage(`{"action":"accept"}`)}}},
	{string(runA), "", call.Refused{Call: callA, Run: runA, Tool: "github.add_issue_comment", Grant: "grt_comment", Lent: call.Lent{Tool: "github.git_push", Grant: "grt_push"}, Approval: approveA, Code: "denied", Reason: "mem_owner said no", Control: 12}},
	{string(runA), call.Upstream, call.Finished{Call: callA, Run: runA, Tool: "github.add_issue_comment", ToolError: true, Recovered: true, Taint: []string{"con_github"}, Body: call.Result{Result: result}}},
	{string(runA), call.Upstream, call.Failed{Call: callA, Run: runA, Tool: "github.add_issue_comment", Code: "upstream_error", Message: "GitHub did not answer the call", Body: call.Fault{Error: json.RawMessage(`{"code":-32602}`)}}},
	{string(runA), call.Script, call.Cancelled{Call: callA, Run: runA, Tool: "runtime.run_javascript", Reason: "the grant was revoked"}},
	{string(runA), call.Exec, call.Unknown{Call: callA, Run: runA, Tool: "machine.exec", Message: "the machine went away"}},
	{string(runA), call.Upstream, call.Late{Call: callA, Run: runA, Tool: "github.add_issue_comment", Body: call.Result{Result: result}}},

	{string(approveA), "", approval.Requested{Approval: approveA, Call: callA, Run: runA, Agent: "agt_triage", Tool: "github.add_issue_comment", Grant: "grt_comment", LentGrant: "grt_push", Digest: digestA, Reason: "the grant holds every call for approval", Quorum: 2, Approver: member.Admin, FourEyes: true, StartedBy: "mem_owner", Requested: 41, EscalateAt: at.Add(30 * time.Minute), ExpiresAt: at.AddDate(0, 0, 1), Body: approval.Shown{Args: args, Input: json.RawMessage(`{"requestState":"s"}`)}}},
	{string(approveA), "", approval.Edited{Approval: approveA, Call: callA, Run: runA, Replaces: digestA, Digest: digestA, Grant: "grt_comment", Reason: "the grant holds every call for approval", Quorum: 2, Approver: member.Admin, FourEyes: true, By: "mem_owner", Body: approval.Change{Args: args, Note: "politer"}}},
	{string(approveA), "", approval.Voted{Approval: approveA, Call: callA, Run: runA, Digest: digestA, By: "mem_owner", ForRun: true, Body: approval.Note{Note: "fine"}}},
	{string(approveA), "", approval.Escalated{Approval: approveA, Call: callA, Run: runA, Digest: digestA}},
	{string(approveA), "", approval.Decided{Approval: approveA, Call: callA, Run: runA, Digest: digestA, Approved: true, By: "mem_owner", Requested: 41, Edited: 44, ForRun: true, Body: approval.Note{Note: "fine"}}},
	{string(approveA), "", approval.Expired{Approval: approveA, Call: callA, Run: runA, Digest: digestA, Requested: 41, Reason: "the grant was revoked"}},

	{"tgt_oncall", "", notice.Queued{Notice: noticeA, Target: "tgt_oncall", About: target.Requested, Approval: approveA, Run: runA, Owner: "0-ABCDEFGHIJKLMNOPQRSTUVWXYZ"}},
	{"tgt_oncall", "", notice.Retried{Notice: noticeA, Target: "tgt_oncall", Attempt: 1, Reason: "it answered 503", NextAt: at.Add(5 * time.Second), Owner: "0-ABCDEFGHIJKLMNOPQRSTUVWXYZ"}},
	{"tgt_oncall", "", notice.Sent{Notice: noticeA, Target: "tgt_oncall", About: target.Requested, Approval: approveA, Attempts: 2, Owner: "0-ABCDEFGHIJKLMNOPQRSTUVWXYZ"}},
	{"tgt_oncall", "", notice.Failed{Notice: noticeA, Target: "tgt_oncall", About: target.Requested, Approval: approveA, Attempts: 10, Reason: "it answered 503", Owner: "0-ABCDEFGHIJKLMNOPQRSTUVWXYZ"}},

	{string(runA), "", script.Started{Call: callA, Run: runA, Attempt: 1, Seed: 18446744073709551615, NowMS: 1796040000123, Tier: "jailed"}},
	{string(runA), "", script.Fetching{Call: callA, Run: runA, Seq: 1, Digest: digestA, Method: "POST", Body: script.Asked{URL: "https://status.example.com/incidents"}}},
	{string(runA), "", script.Fetched{Call: callA, Run: runA, Seq: 1, Digest: digestA, Method: "GET", Status: 200, Bytes: 5242880, Code: "too_large", Body: script.Hops{
		Hops: []script.Hop{{URL: "https://status.example.com/status.json", Address: "203.0.113.9:443", Status: 200}}, Message: "the response is larger than 5242880 bytes",
		Answer: &script.Answer{URL: "https://status.example.com/status.json", Header: []script.Header{{Name: "Content-Type", Value: "application/json"}}, Body: []byte("{}"), Blob: "20261130." + digestA}}}},
	{string(runA), "", script.Searched{Call: callA, Run: runA, Seq: 2, Code: "not_found", Body: script.Told{Query: "open invoices", Tool: "billing.list_invoices", Message: "there is no such tool", Answer: json.RawMessage(`[]`)}}},
	{string(sessionA), "", artifact.Kept{Origin: artifact.Origin{Owner: string(sessionA), Run: runA, Call: callA, Seq: 3}, Name: "totals.json", Type: artifact.JSON, Size: 11, Digest: digestA, Taint: []string{"fetch:status.example.com"}, Body: artifact.Value{Value: []byte(`{"total":7}`)}}},
	{string(sessionA), "", artifact.Removed{Origin: artifact.Origin{Owner: string(sessionA), Run: runA, Call: callA, Seq: 4}, Name: "totals.json"}},
	{string(sessionA), "", artifact.Refused{Origin: artifact.Origin{Owner: string(sessionA), Run: runA, Call: callA, Seq: 5}, Name: "dump.bin", Digest: digestA, Code: "too_large", Message: "an artifact has at most 1048576 bytes"}},

	{"vis_6f708192a3b4c5d6e7f8091021324354", "", visit.Admitted{Visit: "vis_6f708192a3b4c5d6e7f8091021324354", Way: visit.Shell, Environment: "env_builder", Volume: "main", Attachment: "att_1b2c3d4e5f6a8b7c8d9e0f1a2b3c4d5e", Epoch: 2,
		Argv: []string{"htop"}, Terminal: true, Port: 3000}},
	{"vis_6f708192a3b4c5d6e7f8091021324354", "", visit.Ended{Visit: "vis_6f708192a3b4c5d6e7f8091021324354", Environment: "env_builder", Reason: "hangup", Code: -1, Signal: "SIGHUP", Streams: 1, In: 12, Out: 3456, SHA256: digestA, Survivors: 1}},

	{"tnt_main", "", ledger.Checkpointed{Tenant: tenantA, Stream: "EW_ACTIVITY", Size: 64, Root: "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=", Note: "execwarden/tnt_main/EW_ACTIVITY\n64\nn4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=\n\n— execwarden 1a2b3c4d\n"}},
}

func sampleOf(t *testing.T, e schemas.Entry) schemas.Envelope {
	t.Helper()
	for _, s := range samples {
		if s.event.Kind() != e.Kind {
			continue
		}
		data, err := json.Marshal(s.event)
		if err != nil {
			t.Fatal(err)
		}
		noun, _, _ := strings.Cut(e.Kind, ".")
		env := schemas.Envelope{
			SpecVersion: "1.0", ID: id.Derive[id.Event](e.Kind, "golden"), Source: "/" + string(e.Says[0]) + "/0", Type: schemas.TypeOf(e),
			Subject: noun + "/" + s.key, Time: at, ContentType: "application/json", Tenant: tenantA, Actor: "service:" + string(e.Says[0]),
			Causation: id.Derive[id.Event](e.Kind, "cause"), Correlation: "4bf92f3577b34da6a3ce929d0e0e4736", Data: data,
		}
		if strings.HasPrefix(s.key, "run_") {
			env.Run = runA
		}
		return env
	}
	t.Fatalf("there is no sample of %s", e.Kind)
	return schemas.Envelope{}
}

func goldenPath(e schemas.Entry) string { return filepath.Join("testdata", schemas.TypeOf(e)+".json") }

func TestGoldens(t *testing.T) {
	for _, e := range schemas.All() {
		t.Run(e.Kind, func(t *testing.T) {
			raw, err := os.ReadFile(goldenPath(e))
			if errors.Is(err, fs.ErrNotExist) && *update {
				raw, err = json.MarshalIndent(sampleOf(t, e), "", "  ")
				if err == nil {
					raw = append(raw, '\n')
					err = os.WriteFile(goldenPath(e), raw, 0o644)
				}
			}
			if err != nil {
				t.Fatalf("%v; make it with go test ./schemas -run TestGoldens -update", err)
			}
			var env schemas.Envelope
			strictly(t, raw, &env)
			noun, verb, _ := strings.Cut(e.Kind, ".")
			_, key, _ := strings.Cut(env.Subject, "/")
			subject := schemas.Subject{Tenant: env.Tenant, Noun: noun, Key: key, Verb: verb}
			if len(e.Routes) > 0 {
				subject.Route = e.Routes[0]
			}
			parsed, at, err := schemas.ParseEnvelope(subject.String(), raw)
			if err != nil {
				t.Fatal(err)
			}
			if at != subject || parsed.Type != schemas.TypeOf(e) {
				t.Errorf("it stands at %+v with type %s", at, parsed.Type)
			}
			v := reflect.New(e.Type)
			strictly(t, parsed.Data, v.Interface())
			same(t, "data", parsed.Data, v.Interface())
			if parsed.Data, err = json.Marshal(v.Interface()); err != nil {
				t.Fatal(err)
			}
			same(t, "envelope", raw, parsed)
			ev, err := env.Decode()
			if err != nil || !reflect.DeepEqual(ev, v.Elem().Interface()) {
				t.Errorf("Decode gives %+v, %v", ev, err)
			}
		})
	}
}

// A new golden has every field, so that none can be renamed unseen. Goldens that are there have those of their time: a
// field that is added later is left out of them, and so has to be omitted when it is zero.
func TestSamplesHaveEveryField(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range samples {
		if seen[s.event.Kind()] {
			t.Errorf("two samples of %s", s.event.Kind())
		}
		seen[s.event.Kind()] = true
		if missing := unset(reflect.ValueOf(s.event), ""); len(missing) > 0 {
			t.Errorf("the sample of %s leaves out %s", s.event.Kind(), missing)
		}
	}
}

// A golden of no kind is one whose kind was removed or renamed: stored events of it would not be read any more.
func TestNoGoldenIsLeftOver(t *testing.T) {
	known := map[string]bool{}
	for _, e := range schemas.All() {
		known[goldenPath(e)] = true
	}
	found, err := filepath.Glob("testdata/ew.*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if !known[path] {
			t.Errorf("%s is of no kind in the catalogue", path)
		}
	}
	if len(found) != len(known) {
		t.Errorf("%d goldens for %d kinds", len(found), len(known))
	}
}

func strictly(t *testing.T, raw []byte, into any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// same compares JSON values, not their spelling.
func same(t *testing.T, what string, raw []byte, v any) {
	t.Helper()
	again, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if want, got := values(t, raw), values(t, again); !reflect.DeepEqual(want, got) {
		t.Errorf("%s is written again as\n%s\nwant\n%s", what, again, raw)
	}
}

func values(t *testing.T, raw []byte) (v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// unset names the fields of a struct, and of structs in it, that are zero.
func unset(v reflect.Value, in string) []string {
	missing := map[string]bool{}
	for i := range v.NumField() {
		f, name := v.Field(i), in+v.Type().Field(i).Name
		switch {
		case f.IsZero():
			missing[name] = true
		case f.Type() == reflect.TypeFor[time.Time]():
		case f.Kind() == reflect.Struct:
			for _, m := range unset(f, name+".") {
				missing[m] = true
			}
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for _, m := range unset(f.Index(0), name+"[0].") {
				missing[m] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(missing))
}
