package backlog_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/notice"
	"github.com/execwarden/execwarden/services/approvals/internal/backlog"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// Whatever happens: a notice that is not closed is due some time, a closed one never again, each target is asked for one
// at a time and rests when it did not take its last one, and reading the stream again comes to the same.
func TestBacklog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := backlog.New()
		type said struct {
			seq uint64
			at  time.Time
			ev  schemas.Event
		}
		var stream []said
		at := now
		say := func(ev schemas.Event) {
			stream = append(stream, said{uint64(len(stream) + 1), at, ev})
			b.Apply("tnt_a", uint64(len(stream)), at, ev)
		}
		open := map[id.Notice]notice.Queued{}
		attempts := map[id.Notice]int{}
		rests := map[id.Target]time.Time{}
		closed := map[id.Notice]bool{}
		targets := []id.Target{"tgt_a", "tgt_b"}
		t.Repeat(map[string]func(*rapid.T){
			"queue": func(t *rapid.T) {
				n := id.Notice(fmt.Sprint("ntc_", rapid.IntRange(0, 30).Draw(t, "n")))
				q := notice.Queued{Notice: n, Target: targets[len(n)%2], Owner: rapid.SampledFrom([]string{"me", "other"}).Draw(t, "owner")}
				if _, again := open[n]; !again && !closed[n] {
					open[n] = q
				}
				say(q)
			},
			"time passes": func(t *rapid.T) { at = at.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "s")) * time.Second) },
			"send what is due": func(t *rapid.T) {
				for _, n := range b.Due("me", at) {
					q, ok := open[n.Notice]
					switch {
					case !ok:
						t.Fatalf("%s is due, and not open", n.Notice)
					case at.Before(rests[q.Target]):
						t.Fatalf("%s is asked while it rests until %s", q.Target, rests[q.Target])
					}
					switch rapid.IntRange(0, 2).Draw(t, "how") {
					case 0:
						say(notice.Sent{Notice: n.Notice, Target: q.Target, Owner: "me"})
						delete(open, n.Notice)
						closed[n.Notice] = true
					case 1:
						say(notice.Failed{Notice: n.Notice, Target: q.Target, Owner: "me"})
						delete(open, n.Notice)
						closed[n.Notice] = true
					case 2:
						attempts[n.Notice]++
						rests[q.Target] = at.Add(5 * time.Second)
						say(notice.Retried{Notice: n.Notice, Target: q.Target, Attempt: n.Attempts + 1, NextAt: rests[q.Target], Owner: "me"})
					}
				}
			},
			"": func(t *rapid.T) {
				again := backlog.New()
				for _, s := range stream {
					again.Apply("tnt_a", s.seq, s.at, s.ev)
					again.Apply("tnt_a", s.seq, s.at, s.ev) // and once more
				}
				if x, y := fmt.Sprint(b.Due("me", at)), fmt.Sprint(again.Due("me", at)); x != y || b.Len() != len(open) || again.Len() != b.Len() {
					t.Fatalf("%s\n%s\n%d open, want %d", x, y, b.Len(), len(open))
				}
				late := b.Due("me", at.Add(time.Hour))
				for _, of := range targets {
					n := 0
					for _, q := range open {
						if q.Target == of {
							n++
						}
					}
					if has := slices.ContainsFunc(late, func(d backlog.Notice) bool { return d.Target == of }); has != (n > 0) || b.Waiting(backlog.Target{Tenant: "tnt_a", Target: of}) != n {
						t.Fatalf("%s has %d open, due later %v", of, n, has)
					}
				}
			},
		})
	})
}

// Another's notice is taken over only when it has plainly gone.
func TestOrphans(t *testing.T) {
	b := backlog.New()
	b.Apply("tnt_a", 1, now, notice.Queued{Notice: "ntc_1", Target: "tgt_a", Owner: "other"})
	if due := b.Due("me", now.Add(backlog.OrphanedAfter-time.Second)); len(due) != 0 {
		t.Errorf("%+v", due)
	}
	if due := b.Due("other", now); len(due) != 1 {
		t.Errorf("%+v", due)
	}
	if due := b.Due("me", now.Add(backlog.OrphanedAfter)); len(due) != 1 {
		t.Errorf("%+v", due)
	}
	b.Apply("tnt_a", 2, now, notice.Retried{Notice: "ntc_1", Target: "tgt_a", Attempt: 1, NextAt: now.Add(time.Minute), Owner: "me"})
	if due := b.Due("me", now.Add(time.Minute)); len(due) != 1 || due[0].Attempts != 1 {
		t.Errorf("%+v", due)
	}
}

// A notice that waits behind others of its target is not overdue: while its owner works at them, nobody else sends it.
func TestBehindOthersIsNoOrphan(t *testing.T) {
	b := backlog.New()
	for i := range 3 {
		b.Apply("tnt_a", uint64(i+1), now, notice.Queued{Notice: id.Notice(fmt.Sprint("ntc_", i)), Target: "tgt_slow", Owner: "other"})
		b.Apply("tnt_a", uint64(i+11), now, notice.Queued{Notice: id.Notice(fmt.Sprint("ntc_d", i)), Target: "tgt_dead", Owner: "other"})
	}
	at := now.Add(backlog.OrphanedAfter - time.Second)
	b.Apply("tnt_a", 21, at, notice.Sent{Notice: "ntc_0", Target: "tgt_slow", Owner: "other"})
	b.Apply("tnt_a", 22, at, notice.Retried{Notice: "ntc_d0", Target: "tgt_dead", Attempt: 1, NextAt: at.Add(5 * time.Second), Owner: "other"})
	if due := b.Due("me", at.Add(backlog.OrphanedAfter-time.Second)); len(due) != 0 {
		t.Errorf("the owner is at work, and due are %+v", due)
	}
	if due := b.Due("other", at.Add(5*time.Second)); len(due) != 2 || due[0].Notice != "ntc_1" || due[1].Notice != "ntc_d0" {
		t.Errorf("%+v", due)
	}
	if due := b.Due("me", at.Add(5*time.Second+backlog.OrphanedAfter)); len(due) != 2 || due[0].Notice != "ntc_1" || due[1].Notice != "ntc_d0" {
		t.Errorf("the owner is gone, and due are %+v", due)
	}
}
