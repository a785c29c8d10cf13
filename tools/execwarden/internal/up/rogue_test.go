package up

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/connect"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// rogue is whoever has a machine's credentials, and speaks on the bus as it likes.
type rogue struct {
	t        testing.TB
	nc       *nats.Conn
	pair     nkeys.KeyPair
	who      connect.Identity
	instance string

	mu     sync.Mutex
	denied []string // subjects that the server refused
}

// newRogue enrols as an environment, and gets onto the bus by hand.
func (w *world) newRogue(name string) *rogue {
	w.t.Helper()
	if err := w.PutEnvironment(w.t.Context(), id.Environment("env_"+name), environment.Host); err != nil {
		w.t.Fatal(err)
	}
	e, err := w.CreateEnrolment(w.t.Context(), name, false)
	if err != nil {
		w.t.Fatal(err)
	}
	home := shortDir(w.t)
	r := &rogue{t: w.t, instance: strings.ToLower(rand.Text())}
	if r.who, err = connect.Enrol(w.t.Context(), home, w.endpoints.API, e.Token); err != nil {
		w.t.Fatal(err)
	}
	seed, err := os.ReadFile(filepath.Join(home, "connector.seed"))
	if err != nil {
		w.t.Fatal(err)
	}
	if r.pair, err = nkeys.FromSeed([]byte(strings.TrimSpace(string(seed)))); err != nil {
		w.t.Fatal(err)
	}
	public, err := r.pair.PublicKey()
	if err != nil {
		w.t.Fatal(err)
	}
	buskit.Eventually(w.t, "the rogue is let onto the bus", func() bool { // which hears of its enrolment
		r.nc, err = nats.Connect("ws://"+hostport(w.endpoints.API), nats.ProxyPath("/v1/connect"), nats.Name(connector.ClientName+r.instance), nats.Nkey(public, r.pair.Sign),
			nats.CustomInboxPrefix(bus.InboxPrefix(public)), nats.NoReconnect(),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.denied = append(r.denied, err.Error())
			}))
		return err == nil
	})
	w.t.Cleanup(r.nc.Close)
	return r
}

// refused waits until the server has refused a subject.
func (r *rogue) refused(subject string) {
	r.t.Helper()
	buskit.Eventually(r.t, subject+" is refused", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, d := range r.denied {
			if strings.Contains(strings.ToLower(d), strings.ToLower(subject)) && strings.Contains(strings.ToLower(d), "permissions violation") {
				return true
			}
		}
		return false
	})
}

func (r *rogue) hello(at id.Environment) (out connector.Reply[connector.Leases], err error) {
	r.t.Helper()
	h := connector.Hello{Instance: r.instance, Store: "rogue", Version: "1", Manifest: environment.Manifest{Policy: "x", Platform: "linux/amd64", Network: "all", Execs: 1, Volumes: 1}}
	if h.Proof, err = r.pair.Sign(connector.HelloText(h)); err != nil {
		r.t.Fatal(err)
	}
	raw, err := json.Marshal(h)
	if err != nil {
		r.t.Fatal(err)
	}
	m, err := r.nc.Request(bus.MachineSubject(r.who.Tenant, at, "hello"), raw, 2*time.Second)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(m.Data, &out)
}

// answer answers what is asked of the rogue, by verb, as often as there are answers.
func (r *rogue) answer(answers map[string]func(data []byte) [][]byte) {
	r.t.Helper()
	sub, err := r.nc.Subscribe(bus.EnvironmentSubject(r.who.Tenant, r.who.Environment, r.instance, "*"), func(m *nats.Msg) {
		verb := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		if f := answers[verb]; f != nil {
			for _, raw := range f(m.Data) {
				_ = m.Respond(raw)
			}
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = sub.Unsubscribe() })
}

// keepBeating says that the rogue works, as a connector does.
func (r *rogue) keepBeating() {
	done, ended := make(chan struct{}), make(chan struct{})
	r.t.Cleanup(func() { close(done); <-ended })
	raw, err := json.Marshal(connector.Beat{Instance: r.instance})
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(ended)
		for {
			_ = r.nc.Publish(bus.MachineSubject(r.who.Tenant, r.who.Environment, "beat"), raw)
			select {
			case <-done:
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
}

// A machine that speaks as it likes speaks for itself alone: what is another's it neither hears nor changes, and what it
// answers is one bounded answer to what it was asked.
func TestRogueMachine(t *testing.T) {
	w := newWorld(t)
	w.newOutpost("honest", "")
	buskit.Eventually(t, "the honest machine is online", func() bool { return w.environment("honest").State == ask.Online })
	w.scripted("worker", scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "echo honest output"}})
	if _, err := w.Attach(t.Context(), "honest", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	results, _ := w.results("worker")
	honest := resultOf[machine.Exec](t, results[0])
	before := w.environment("honest")

	r := w.newRogue("rogue")
	if reply, err := r.hello("env_rogue"); err != nil || reply.Code != "" {
		t.Fatalf("hello: %+v, %v", reply, err)
	}
	r.keepBeating()

	// What is another's is not said and not heard.
	if _, err := r.hello("env_honest"); err == nil {
		t.Error("a hello for another environment is answered")
	}
	r.refused("ew.machine.v1.tnt_main.env_honest.hello")
	for _, subject := range []string{
		"ew.machine.v1.tnt_main.env_honest.beat", "ew.machine.v1.tnt_other.env_rogue.beat", "ew.out.v1.tnt_main.env_honest." + honest.Exec, "ew.out.v1.tnt_main._." + honest.Exec,
		"ew.out.v1.tnt_other.env_rogue." + honest.Exec, "ew.v1.tnt_main.call.run_x.finished.exec", "ew.env.v1.tnt_main.env_honest.x.order", "$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.CREATE.EW_OUTPUT.x", "$SYS.REQ.USER.AUTH",
	} {
		if err := r.nc.Publish(subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		r.refused(subject)
	}
	for _, subject := range []string{"ew.env.v1.tnt_main.env_honest.*.*", "ew.machine.v1.*.*.hello", "ew.machine.v1.tnt_main.env_rogue.*", "ew.out.v1.>", "ew.v1.>", "_INBOX.>", ">"} {
		sub, err := r.nc.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		r.refused(subject)
		_ = sub.Unsubscribe()
	}

	// Output under the name of a call that another machine was given is nobody's.
	forged := nats.NewMsg(bus.OutputSubject(r.who.Tenant, r.who.Environment, id.Call(honest.Exec)))
	forged.Data = []byte("forged output\n")
	forged.Header.Set(connector.HeaderStream, "stdout")
	forged.Header.Set(connector.HeaderOffset, "0")
	if _, err := r.nc.RequestMsg(forged, 5*time.Second); err != nil {
		t.Fatalf("it is stored where only the registry looks for it: %v", err)
	}
	read := func(c id.Call) (text string) {
		page, err := w.Output(t.Context(), c, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page.Pieces {
			text += string(p.Data)
		}
		return text
	}
	buskit.Eventually(t, "the honest output is stored", func() bool { return read(id.Call(honest.Exec)) == "honest output\n" })

	// What it answers to its own orders.
	var mode string
	var mu sync.Mutex
	set := func(m string) { mu.Lock(); defer mu.Unlock(); mode = m }
	replied := func(body any) []byte {
		raw, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		return raw
	}
	doneWith := func(result string) []byte {
		return replied(connector.Reply[connector.Answer]{Body: connector.Answer{State: connector.Done, Result: json.RawMessage(result)}})
	}
	asked := 0
	r.answer(map[string]func([]byte) [][]byte{
		"lease": func([]byte) [][]byte { return [][]byte{replied(connector.Reply[connector.Leased]{})} },
		"order": func(raw []byte) [][]byte {
			mu.Lock()
			defer mu.Unlock()
			asked++
			var o connector.Order
			_ = json.Unmarshal(raw, &o)
			switch mode {
			case "twice":
				return [][]byte{doneWith(`{"said":"first"}`), doneWith(`{"said":"second"}`)}
			case "garbage":
				if asked == 1 {
					return [][]byte{[]byte("\xff\xfe no JSON at all")}
				}
				return [][]byte{replied(connector.Reply[connector.Answer]{Body: connector.Answer{State: connector.Unknown, Message: strings.Repeat("\x00\xff", 10_000)}})}
			case "a code of ours":
				return [][]byte{replied(connector.Reply[connector.Answer]{Body: connector.Answer{State: connector.Refused, Code: "no_such_code", Message: "<script>" + strings.Repeat("x", 10_000)}})}
			case "flood":
				for i := range 3000 {
					_ = r.nc.Publish(bus.OutputSubject(r.who.Tenant, r.who.Environment, o.Call), []byte(strings.Repeat("y", 1000)+string(rune('a'+i%26))))
				}
				return [][]byte{doneWith(`{"exec":"` + honest.Exec + `","state":"exited"}`)}
			}
			return nil
		},
	})
	w.scripted("misled", scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "true"}})
	if _, err := w.Attach(t.Context(), "rogue", client.Attachment{Agent: "misled"}); err != nil {
		t.Fatal(err)
	}
	for m, want := range map[string]string{
		"twice": `{"said":"first"}`, "garbage": `"call"`, "a code of ours": `"code":"upstream_error"`, "flood": `"state":"exited"`,
	} {
		mu.Lock()
		asked = 0
		mu.Unlock()
		set(m)
		results, row := w.results("misled")
		if len(results) != 1 || !strings.Contains(string(results[0]), want) || len(results[0]) > 4<<10 || strings.Contains(string(results[0]), "second") {
			t.Errorf("%s: the run %s has outcomes %.2000s", m, row.State, results)
		}
	}

	// The honest one is as it was.
	if now := w.environment("honest"); now.State != ask.Online || now.Volumes[0].Epoch != before.Volumes[0].Epoch || now.Volumes[0].Attached == nil || now.Manifest.Policy != before.Manifest.Policy {
		t.Errorf("the honest environment %+v, before %+v", now, before)
	}
	if got := read(id.Call(honest.Exec)); got != "honest output\n" {
		t.Errorf("the honest output %q", got)
	}
	if results, _ := w.results("worker"); resultOf[machine.Exec](t, results[0]).Stdout != "honest output\n" {
		t.Errorf("the honest machine afterwards: %s", results)
	}
	w.mustVerify()
}
