package up

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/postgres"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

const guid = "11111111-cc78-11e3-81ab-4c9367dc0958"

// With NATS away nothing is told to be done that is not recorded; when it is back, the run goes on and acts once.
func TestNATSStopsMidRun(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Always)
	w.deliver(guid)
	a := w.waitingApproval()

	w.nats.Halt()
	_, err := w.StartRun(t.Context(), "triage", "hello")
	switch code := problem.CodeOf(err); code {
	case problem.AuditUnavailable, problem.Pending, problem.Unavailable, problem.Timeout:
	default:
		t.Errorf("a run without a bus: %v", err)
	}
	if resp := w.deliver("22222222-cc78-11e3-81ab-4c9367dc0958"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a delivery without a bus is answered %s, want 503", resp.Status)
	}
	if err := w.nats.Resume(); err != nil {
		t.Fatal(err)
	}
	w.approve(a)
	if r := w.ended(); r.State != "completed" {
		t.Errorf("the run ended %s: %s", r.State, r.Message)
	}
	if n := w.github.Effects(); n != 1 {
		t.Errorf("%d comments, want 1", n)
	}
	w.mustVerify()
}

// Without Postgres runs go on; the ledger catches up without a gap, to the roots that it would have had.
func TestPostgresStopsMidRun(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Never)
	before := w.mustVerify()
	stop, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := w.postgres.Stop(stop); err != nil {
		t.Fatal(err)
	}
	w.deliver(guid)
	buskit.Eventually(t, "the comment is there without Postgres", func() bool { return w.github.Effects() == 1 })
	again, err := postgres.Start(t.Context(), postgres.Config{DataDir: filepath.Join(w.dir, "data", "postgres")}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		w.stop()
		if err := again.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if again.URL() != w.postgres.URL() {
		t.Fatalf("Postgres is at %s now, was at %s", again.URL(), w.postgres.URL())
	}
	if r := w.ended(); r.State != "completed" {
		t.Errorf("the run ended %s: %s", r.State, r.Message)
	}
	if after := w.mustVerify(); after.Leaves <= before.Leaves {
		t.Errorf("%d leaves after, %d before", after.Leaves, before.Leaves)
	}
}

// The inbox is approvals' own fold: members see what waits, edit and decide it with Postgres away, and the run goes on.
func TestApprovalsWithoutPostgres(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Always)
	stop, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := w.postgres.Stop(stop); err != nil {
		t.Fatal(err)
	}
	w.deliver(guid)
	a := w.waitingApproval()
	if shown, err := w.Approval(t.Context(), a.Approval); err != nil || shown.Digest != a.Digest {
		t.Errorf("%+v, %v", shown, err)
	}
	args := strings.Replace(string(a.Body.Args), `"body":"`, `"body":"without a database: `, 1)
	edited, err := w.EditApproval(t.Context(), a.Approval, a.Digest, json.RawMessage(args), "")
	if err != nil {
		t.Fatal(err)
	}
	w.approve(edited)
	buskit.Eventually(t, "the comment is there", func() bool { return w.github.Effects() == 1 })
	if got := w.github.Comments()[0]; !strings.HasPrefix(got, "without a database: ") {
		t.Errorf("%q", got)
	}
	again, err := postgres.Start(t.Context(), postgres.Config{DataDir: filepath.Join(w.dir, "data", "postgres")}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		w.stop()
		if err := again.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if r := w.ended(); r.State != "completed" {
		t.Errorf("the run ended %s: %s", r.State, r.Message)
	}
	w.mustVerify()
}

// The streams are the truth: a ledger that lost its database builds the same trees from them.
func TestLedgerRebuildsFromTheStreams(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Never)
	w.deliver(guid)
	w.ended()
	before := w.mustVerify()
	w.stop()
	if err := os.RemoveAll(filepath.Join(w.dir, "data", "postgres")); err != nil {
		t.Fatal(err)
	}
	w.start()
	after := w.mustVerify()
	for i, tree := range before.Trees {
		if after.Trees[i] != tree {
			t.Errorf("tree %+v was %+v", after.Trees[i], tree)
		}
	}
}

// What cannot be decoded is put aside by its handlers, is a leaf in the ledger all the same, and holds nobody up.
func TestMalformedEvent(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Never)
	before := w.mustVerify()
	boot, err := bus.Connect(t.Context(), w.nats.Client(bus.BootUser, "test"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer boot.Close()
	garbage := []string{"", "{", "\x00\xff\xfe", `{"specversion":"1.0","data":{}}`, `{"a":"\u0000\ud800"}`, strings.Repeat("[", 50_000)}
	for _, raw := range garbage {
		if _, err := boot.JS.PublishMsg(t.Context(), &nats.Msg{Subject: "ew.v1.tnt_main.call.run_x.requested", Data: []byte(raw)}); err != nil {
			t.Fatal(err)
		}
	}
	w.deliver(guid)
	if r := w.ended(); r.State != "completed" {
		t.Errorf("the run ended %s: %s", r.State, r.Message)
	}
	after := w.mustVerify()
	if got := after.Leaves - before.Leaves; got < int64(len(garbage))+10 {
		t.Errorf("%d leaves more, fewer than the garbage and the run", got)
	}
	dlq, err := boot.JS.Stream(t.Context(), bus.DLQStream)
	if err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the garbage is in the DLQ of each who heard it", func() bool {
		info, err := dlq.Info(t.Context())
		return err == nil && info.State.Msgs >= uint64(2*len(garbage)) // toolbroker and agentloop hear requests
	})
}

// One bit, changed behind the triggers' back, is found and named.
func TestTamperedLedger(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Never)
	w.deliver(guid)
	w.ended()
	w.mustVerify()
	db, err := pgx.Connect(t.Context(), w.postgres.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	var seq uint64
	for _, sql := range []string{
		`SET session_replication_role = replica`,
		`UPDATE ledger_body SET raw = set_byte(raw, 200, get_byte(raw, 200) # 1) WHERE tenant = 'tnt_main' AND stream = 'EW_ACTIVITY' AND kind = 'run.completed'`,
	} {
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.QueryRow(t.Context(), `SELECT sseq FROM ledger_body WHERE kind = 'run.completed'`).Scan(&seq); err != nil {
		t.Fatal(err)
	}
	v, err := w.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v.Verdict != "tampered" || len(v.Faults) == 0 || !strings.Contains(strings.Join(v.Faults, "\n"), "EW_ACTIVITY") {
		t.Fatalf("one bit changed at sequence %d: %+v", seq, v)
	}
}

// Revoking a grant stops a call that waits for a person: what they approve afterwards is refused.
func TestRevokedWhileHeld(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Always)
	w.deliver(guid)
	a := w.waitingApproval()
	if _, err := w.Revoke(t.Context(), "comment", "not this time"); err != nil {
		t.Fatal(err)
	}
	// There is nothing to decide any more. Who does so before that is said changes nothing: the broker refuses the call.
	if _, err := w.Decide(t.Context(), a.Approval, client.Decision{Digest: a.Digest, Approve: true}); err != nil && problem.CodeOf(err) != problem.Expired {
		t.Errorf("%v", err)
	}
	if r := w.ended(); r.State != "completed" {
		t.Errorf("the run ended %s: %s", r.State, r.Message)
	}
	if n := w.github.Effects(); n != 0 {
		t.Errorf("%d comments under a revoked grant", n)
	}
}

func TestDeniedApproval(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Always)
	w.deliver(guid)
	a := w.waitingApproval()
	if _, err := w.Decide(t.Context(), a.Approval, client.Decision{Digest: "0" + a.Digest[1:], Approve: true}); problem.CodeOf(err) != problem.Conflict && a.Digest[0] != '0' {
		t.Errorf("a decision about another digest: %v", err)
	}
	if _, err := w.Decide(t.Context(), a.Approval, client.Decision{Digest: a.Digest, Approve: false, Note: "no"}); err != nil {
		t.Fatal(err)
	}
	w.ended()
	if n := w.github.Effects(); n != 0 {
		t.Errorf("%d comments although it was denied", n)
	}
	if _, err := w.Decide(t.Context(), a.Approval, client.Decision{Digest: a.Digest, Approve: true}); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("a second decision: %v, want conflict", err)
	}
}

func (w *world) mustVerify() ask.Verified {
	w.t.Helper()
	var v ask.Verified
	buskit.Eventually(w.t, "the ledger verifies", func() bool {
		var err error
		v, err = w.Verify(w.t.Context())
		return err == nil
	})
	if v.Verdict != "verified" {
		w.t.Fatalf("ledger: %+v", v)
	}
	return v
}
