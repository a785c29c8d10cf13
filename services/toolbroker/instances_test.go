package toolbroker_test

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/barrier"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
)

// waiting lets GitHub take calls and answer none until their caller gives up.
func (h *house) waiting() *atomic.Int64 {
	var arrived atomic.Int64
	h.says(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server sees its client go only after the body
		arrived.Add(1)
		select {
		case <-r.Context().Done():
		case <-h.t.Context().Done(): // the test has failed; its server is waited for
		}
	})
	return &arrived
}

// With 64 calls in flight on two brokers, a revocation that is in force has reached all of them, and none starts after.
func TestRevokeReachesEveryBroker(t *testing.T) {
	h := start(t)
	h.run()
	arrived := h.waiting()
	const calls = 64
	for n := range calls {
		h.request(id.Call(fmt.Sprint("call_", n)), "github.issue_read", readArgs, nil)
	}
	buskit.Eventually(t, "all calls are in flight", func() bool { return arrived.Load() == calls })
	seq := h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_read", Event: grant.Revoked{Grant: "grt_read", Agent: "agt_a"}})
	done, err := barrier.Wait(t.Context(), h.Conn(t, string(schemas.Approvals)), servicekit.Owner(), seq)
	if err != nil || done.Heard != 2 || len(done.Fenced) != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	for n := range 8 {
		c := id.Call(fmt.Sprint("call_after", n))
		h.request(c, "github.issue_read", readArgs, nil)
		if got, _ := await[call.Refused](h, c); got.Code != string(problem.Denied) {
			t.Errorf("after the revocation: %+v", got)
		}
	}
	for n := range calls {
		if got, _ := await[call.Cancelled](h, id.Call(fmt.Sprint("call_", n))); got.Reason != "the grant was revoked" {
			t.Errorf("%+v", got)
		}
	}
	if n := arrived.Load(); n != calls {
		t.Errorf("GitHub was asked %d times", n)
	}
}

// Every broker stops the calls of a cancelled run, whichever makes them.
func TestRunCancelledReachesEveryBroker(t *testing.T) {
	h := start(t)
	h.run()
	arrived := h.waiting()
	const calls = 16
	for n := range calls {
		h.request(id.Call(fmt.Sprint("call_", n)), "github.issue_read", readArgs, nil)
	}
	buskit.Eventually(t, "all calls are in flight", func() bool { return arrived.Load() == calls })
	h.Say(schemas.Agentloop, eventlog.Draft{Key: string(run1), Event: run.Cancelled{Run: run1, Reason: "r"}})
	for n := range calls {
		await[call.Cancelled](h, id.Call(fmt.Sprint("call_", n)))
	}
	// What the run asked for last is not begun.
	h.request("call_late", "github.issue_read", readArgs, nil)
	if got, _ := await[call.Cancelled](h, "call_late"); got.Reason != "the run was cancelled" || arrived.Load() != calls {
		t.Errorf("%+v; GitHub was asked %d times", got, arrived.Load())
	}
}

// A broker that was not there when the run was cancelled begins nothing of it either: an admission that was left, and a
// call that is approved only then.
func TestRunCancelledBeforeTheBrokerStarted(t *testing.T) {
	h := start(t)
	h.grant("grt_comment", "github.add_issue_comment", grant.Always)
	seq := h.request("call_held", "github.add_issue_comment", commentArgs, nil)
	held, _ := await[call.Held](h, "call_held")
	h.stop()
	h.request("call_left", "github.issue_read", readArgs, func(r *call.Requested) { r.NotAfter = time.Now().Add(time.Hour) })
	h.Say(schemas.Agentloop, eventlog.Draft{Key: string(run1), Event: run.Cancelled{Run: run1, Reason: "r"}})
	h.Say(schemas.Approvals, eventlog.Draft{Key: "apr_1", Event: approval.Decided{Approval: "apr_1", Call: "call_held", Run: run1, Digest: held.Digest, Approved: true, By: "mem_a", Requested: seq}})
	arrived := h.waiting()
	h.run()
	if got, _ := await[call.Refused](h, "call_held"); got.Code != string(problem.Cancelled) {
		t.Errorf("%+v", got)
	}
	if got, _ := await[call.Cancelled](h, "call_left"); got.Reason != "the run was cancelled" || arrived.Load() != 0 {
		t.Errorf("%+v; GitHub was asked %d times", got, arrived.Load())
	}
}

// A call that ends makes room for another under a grant that limits the calls at once.
func TestCallsAtOnce(t *testing.T) {
	h := start(t)
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_read", Event: grant.Created{Grant: "grt_read", Agent: "agt_a", Approval: grant.Never, Limits: grant.Limits{AtOnce: 2},
		Selector: grant.Selector{Tool: "github.issue_read", Repos: []string{"acme/shop"}}}}))
	answer := make(chan struct{})
	h.says(func(w http.ResponseWriter, _ *http.Request) {
		<-answer
		_, _ = w.Write([]byte(`{"number": 7}`))
	})
	for _, c := range []id.Call{"call_1", "call_2"} {
		h.request(c, "github.issue_read", readArgs, nil)
		await[call.Admitted](h, c)
	}
	h.request("call_3", "github.issue_read", readArgs, nil)
	if got, _ := await[call.Refused](h, "call_3"); got.Code != string(problem.Busy) {
		t.Errorf("%+v", got)
	}
	close(answer)
	await[call.Finished](h, "call_1")
	h.request("call_4", "github.issue_read", readArgs, nil)
	await[call.Finished](h, "call_4")
}

// A call that ended makes room also when the stream keeps nothing of it any more.
func TestCallsAtOnceOutliveTheStream(t *testing.T) {
	h := start(t)
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_read", Event: grant.Created{Grant: "grt_read", Agent: "agt_a", Approval: grant.Never, Limits: grant.Limits{AtOnce: 1},
		Selector: grant.Selector{Tool: "github.issue_read", Repos: []string{"acme/shop"}}}}))
	h.request("call_1", "github.issue_read", readArgs, nil)
	await[call.Finished](h, "call_1")
	stream, err := h.Boot.JS.Stream(t.Context(), string(schemas.Activity))
	if err != nil {
		t.Fatal(err)
	}
	kept := stream.CachedInfo().Config
	short := kept
	short.MaxAge, short.Duplicates = 100*time.Millisecond, 100*time.Millisecond
	if _, err := h.Boot.JS.UpdateStream(t.Context(), short); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "nothing of it is kept", func() bool { return len(h.Events(schemas.Activity)) == 0 })
	if _, err := h.Boot.JS.UpdateStream(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	h.request("call_2", "github.issue_read", readArgs, nil)
	await[call.Finished](h, "call_2")
}
