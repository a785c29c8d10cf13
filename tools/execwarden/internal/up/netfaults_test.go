package up

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/services/environments"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// Times of these tests, in which a machine is given up in seconds: the same in proportion as by default.
const (
	shortLife = 6 * time.Second
	shortLost = 12 * time.Second
)

// newSiteWorld is ExecWarden where a site's machine reaches it.
func newSiteWorld(t *testing.T) (*site, *world) {
	t.Helper()
	s := newSite(t)
	w := newWorldAround(t)
	w.listen = s.warden + ":0"
	w.machines = func(c *environments.Config) {
		c.LeaseLife, c.LostAfter, c.GiveUpAfter = shortLife, shortLost, time.Minute
	}
	w.start()
	t.Cleanup(func() { w.stop() })
	return s, w
}

// begun starts a run, and waits until its command has made a file in the volume.
func (v *vm) begun(agent, file string) ask.RunRow {
	v.s.t.Helper()
	started, err := v.w.StartRun(v.s.t.Context(), agent, "go")
	if err != nil {
		v.s.t.Fatal(err)
	}
	buskit.Eventually(v.s.t, "the command runs", func() bool {
		_, err := os.Stat(filepath.Join(v.volume(), file))
		return err == nil
	})
	return ask.RunRow{Run: started.Run}
}

func (v *vm) touch(file string) {
	v.s.t.Helper()
	if err := os.WriteFile(filepath.Join(v.volume(), file), nil, 0o644); err != nil {
		v.s.t.Fatal(err)
	}
}

// outcomes are the ends of a run's calls.
func outcomes(w *world, run id.Run) (finished []call.Finished, unknown []call.Unknown, others int) {
	for _, ev := range w.decoded(run) {
		switch ev := ev.(type) {
		case call.Finished:
			finished = append(finished, ev)
		case call.Unknown:
			unknown = append(unknown, ev)
		case call.Failed, call.Cancelled, call.Refused:
			others++
		}
	}
	return finished, unknown, others
}

// mustBeWhole holds what a command printed against what it wrote down, as it is stored and as its end says.
func (v *vm) mustBeWhole(run id.Run, copyFile string) {
	v.s.t.Helper()
	v.w.endedAs(run)
	var finished []call.Finished
	buskit.Eventually(v.s.t, "the outcome is recorded", func() bool {
		finished, _, _ = outcomes(v.w, run)
		return len(finished) == 1
	})
	want, err := os.ReadFile(filepath.Join(v.volume(), copyFile))
	if err != nil {
		v.s.t.Fatal(err)
	}
	var printed []byte
	at := int64(0)
	page := ask.Output{}
	buskit.Eventually(v.s.t, "the output is stored", func() bool {
		page, err = v.w.Output(v.s.t.Context(), finished[0].Call, page.Next, 0)
		if err != nil {
			v.s.t.Fatal(err)
		}
		for _, p := range page.Pieces {
			p, at = p.From(at)
			printed = append(printed, p.Data...)
		}
		return page.End != nil
	})
	sum := sha256.Sum256(want)
	if !bytes.Equal(printed, want) || page.End.SHA256 != hex.EncodeToString(sum[:]) || page.End.Lost != 0 {
		v.s.t.Errorf("stored are %d bytes of %d, its end says %+v", len(printed), len(want), page.End)
	}
}

// talker prints all the while, and writes down what, until there is a file go.
const talker = `exec 3>copy; i=0; while [ ! -e go ]; do i=$((i+1)); l="line $i of many, all of which have to arrive"; echo "$l"; echo "$l" >&3; [ $((i%20)) = 0 ] && sleep 0.01; [ $i = 50 ] && touch begun; done; true`

// A cable that is out for a moment, for longer than it takes to be missed, and a connector that stands still or is killed
// in the middle: the command prints on, and not a byte is lost or there twice.
func TestCutOff(t *testing.T) {
	s, w := newSiteWorld(t)
	v := s.newVM(w, "vm", "")
	v.online()
	w.scripted("talker", scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": talker}})
	if _, err := w.Attach(t.Context(), "vm", client.Attachment{Agent: "talker"}); err != nil {
		t.Fatal(err)
	}
	offline := func() {
		buskit.Eventually(t, "the machine is missed", func() bool { return w.environment("vm").State == ask.Offline })
	}
	for _, c := range []struct {
		name  string
		fault func()
	}{
		{"for a second", func() { s.cut(); time.Sleep(time.Second); s.connect() }},
		{"longer than a beat", func() { s.cut(); offline(); s.connect(); v.online() }},
		{"again and again", func() {
			for range 5 {
				s.cut()
				time.Sleep(200 * time.Millisecond)
				s.connect()
				time.Sleep(200 * time.Millisecond)
			}
		}},
		{"the connector killed", func() {
			for range 3 {
				v.kill()
				v.start()
				v.online()
			}
		}},
		{"the connector freezes", func() {
			v.signal(syscall.SIGSTOP)
			var took []time.Duration
			for w.environment("vm").State != ask.Offline {
				began := time.Now()
				if _, err := w.Environments(t.Context()); err != nil {
					t.Errorf("while a connector stands still: %v", err)
				}
				took = append(took, time.Since(began))
				time.Sleep(20 * time.Millisecond)
			}
			slices.Sort(took)
			t.Logf("with a connector that stands still, %d lists of environments took %s at the median, %s at most", len(took), took[len(took)/2], took[len(took)-1])
			v.signal(syscall.SIGCONT)
			v.online()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			row := v.begun("talker", "begun")
			c.fault()
			v.touch("go")
			v.mustBeWhole(row.Run, "copy")
			for _, file := range []string{"go", "begun", "copy"} {
				_ = os.Remove(filepath.Join(v.volume(), file)) // it was there
			}
		})
	}
}

// sleepers counts processes whose command line holds a word.
func sleepers(word string) (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, p := range all {
		if raw, err := os.ReadFile(p); err == nil && strings.HasPrefix(string(raw), "sleep\x00"+word) {
			n++
		}
	}
	return n
}

// A machine that is cut off for good stops by itself: its lease lapses, what runs is killed after its grace. The registry
// gives it up meanwhile, and says that it does not know. What comes back then is of an epoch that is over.
func TestCutOffForGood(t *testing.T) {
	s, w := newSiteWorld(t)
	v := s.newVM(w, "vm", "orphan_grace: 1s\n")
	v.online()
	word := fmt.Sprintf("6%d", 10000000+os.Getpid())
	w.scripted("sleeper", scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "echo said early; setsid sleep " + word + " & touch begun; sleep " + word}})
	if _, err := w.Attach(t.Context(), "vm", client.Attachment{Agent: "sleeper"}); err != nil {
		t.Fatal(err)
	}
	row := v.begun("sleeper", "begun")
	before := w.environment("vm").Volumes[0]
	buskit.Eventually(t, "both processes run", func() bool { return sleepers(word) == 2 })
	s.cut()
	buskit.Eventually(t, "the machine ends what runs by itself", func() bool { return sleepers(word) == 0 })
	w.endedAs(row.Run)
	var unknown []call.Unknown
	buskit.Eventually(t, "the outcome is recorded", func() bool {
		_, unknown, _ = outcomes(w, row.Run)
		return len(unknown) == 1
	})
	if !strings.Contains(unknown[0].Message, "while the machine was away") {
		t.Errorf("the outcome %+v", unknown[0])
	}
	after := w.environment("vm").Volumes[0]
	if after.Attached != nil || after.Ended == nil || after.Ended.How != volume.Lost || after.Ended.Survivors != -1 {
		t.Errorf("the volume %+v", after)
	}
	// Another attachment, of a later epoch, while the machine does not know yet.
	w.scripted("sleeper", scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "echo works again"}})
	if _, err := w.Attach(t.Context(), "vm", client.Attachment{Agent: "sleeper"}); err != nil {
		t.Fatal(err)
	}
	if now := w.environment("vm").Volumes[0]; now.Attached == nil || now.Attached.Attachment == before.Attached.Attachment || now.Epoch <= before.Epoch {
		t.Errorf("the volume %+v, before %+v", now, before)
	}
	s.connect()
	v.online()
	results, _ := w.results("sleeper")
	if len(results) != 1 || resultOf[machine.Exec](t, results[0]).Stdout != "works again\n" {
		t.Errorf("afterwards: %s", results)
	}
	// What the machine still had to say of the old call is no outcome.
	if finished, unknown, others := outcomes(w, row.Run); len(finished) != 0 || len(unknown) != 1 || others != 0 {
		t.Errorf("the old run has outcomes %v, %v, %d others", finished, unknown, others)
	}
	w.mustVerify()
}

// A connector that is killed at any moment of an order leaves it done once, or not known: a command's receipt is there
// before the command, a file is whole or as it was.
func TestConnectorKilledAtAnyMoment(t *testing.T) {
	s, w := newSiteWorld(t)
	v := s.newVM(w, "vm", "")
	v.online()
	long := strings.Repeat("all of this or nothing of it. ", 8000)
	calls := []scriptmodel.Call{
		{Tool: "machine.exec", Args: map[string]string{"command": "echo $RANDOM x >> counter; wc -l <counter"}},
		{Tool: "machine.write_file", Args: map[string]string{"path": "file", "content": long}},
	}
	w.scripted("worker", calls...)
	if _, err := w.Attach(t.Context(), "vm", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ran, lost := 0, 0
	for range 6 {
		_ = os.Remove(filepath.Join(v.volume(), "counter"))
		_ = os.Remove(filepath.Join(v.volume(), "file"))
		started, err := w.StartRun(t.Context(), "worker", "go")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		v.kill()
		v.start()
		w.endedAs(started.Run)
		v.online()
		var finished []call.Finished
		var unknown []call.Unknown
		buskit.Eventually(t, "the outcomes are recorded", func() bool {
			finished, unknown, _ = outcomes(w, started.Run)
			return len(finished)+len(unknown) == 2
		})
		ran, lost = ran+len(finished), lost+len(unknown)
		raw, err := os.ReadFile(filepath.Join(v.volume(), "counter"))
		if n := bytes.Count(raw, []byte("\n")); err == nil && n != 1 {
			t.Errorf("the command ran %d times", n)
		}
		for _, f := range finished {
			if f.Tool == "machine.exec" && err != nil {
				t.Error("a command is said to have ended that never ran")
			}
		}
		file, err := os.ReadFile(filepath.Join(v.volume(), "file"))
		if err == nil && string(file) != long {
			t.Errorf("the file has %d bytes of %d", len(file), len(long))
		}
		for _, f := range finished {
			if f.Tool == "machine.write_file" && err != nil {
				t.Error("a file is said to be written that is not there")
			}
		}
	}
	t.Logf("%d calls ended, of %d it is not known", ran, lost)
}
