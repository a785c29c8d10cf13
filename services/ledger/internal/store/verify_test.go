package store

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

var (
	key   = ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize)))
	other = ed25519.NewKeyFromSeed([]byte(strings.Repeat("o", ed25519.SeedSize)))
)

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

// parse reads what record wrote.
func parse(_ string, raw []byte) Meta {
	var e struct {
		ID, Run string
		Data    struct{ N uint64 }
	}
	if json.Unmarshal(raw, &e) != nil || e.ID == "" {
		return Meta{}
	}
	m := record(e.Data.N, 1).Meta
	m.Run, m.Key = e.Run, e.Run
	return m
}

func trust() Trust {
	return Trust{Deployment: "example.org", Keys: []ed25519.PublicKey{public(key)}, Parse: parse}
}

// checkpoint signs and saves the head of every tree that has grown.
func checkpoint(t testing.TB, s *Store, keys ...ed25519.PrivateKey) (notes [][]byte) {
	t.Helper()
	heads, err := s.Due(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range heads {
		c := merkle.Checkpoint{Origin: merkle.Origin("example.org", h.Tenant, h.Stream), Size: h.Size, Root: h.Root}
		note, err := merkle.Sign(c, keys...)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SaveCheckpoint(t.Context(), h.Tenant, h.Stream, c, note); err != nil {
			t.Fatal(err)
		}
		notes = append(notes, note)
	}
	return notes
}

func verify(t testing.TB, s *Store, tenant string, with Trust) *Report {
	t.Helper()
	report, err := s.Verify(t.Context(), tenant, with)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// filled is a ledger of two tenants with 1,300 leaves each and checkpoints at 600 and 1,300.
func filled(t testing.TB) *Store {
	t.Helper()
	s := setup(t)
	ingest(t, s, records(1, 1200, 2))
	checkpoint(t, s, key)
	ingest(t, s, records(1201, 2600, 2))
	checkpoint(t, s, key)
	return s
}

func TestIntact(t *testing.T) {
	t.Parallel()
	s := filled(t)
	ingest(t, s, records(2601, 2610, 2)) // not signed yet
	r := verify(t, s, "tenant_1", trust())
	if r.Verdict() != Intact || len(r.Streams) != 1 {
		t.Fatalf("%s %v", r.Verdict(), r.Problems)
	}
	got := r.Streams[0]
	want := StreamReport{Stream: activity, Leaves: 1305, Bodies: 1305, Size: 1305, Root: roots(t, s, 2)["tenant_1/"+activity], Checkpoints: 2, Signed: 1300}
	if got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// TestTampering changes one thing, and wants it named. Leaf 777 of tenant_1 is event evt_1555, sequence 1555.
func TestTampering(t *testing.T) {
	t.Parallel()
	const row = ` WHERE tenant = 'tenant_1' AND stream = 'EW_ACTIVITY' AND sseq = 1555`
	leaf := func(verdict Verdict, what string) Problem {
		return Problem{verdict, "tenant_1", activity, 777, 777, 1555, "evt_1555", what}
	}
	span := func(verdict Verdict, first, last int64, what string) Problem {
		return Problem{verdict, "tenant_1", activity, first, last, 0, "", what}
	}
	const tree = ` WHERE tenant = 'tenant_1' AND stream = 'EW_ACTIVITY'`
	for name, fault := range map[string]struct {
		sql  []string
		want []Problem
	}{
		"one bit of the bytes": {
			[]string{`UPDATE ledger_body SET raw = set_bit(raw, 100, 1 - get_bit(raw, 100))` + row},
			[]Problem{leaf(Tampered, "the raw bytes do not hash to the leaf")},
		},
		"bytes and leaf together": {
			[]string{
				`UPDATE ledger_body SET raw = raw || '\x20'` + row,
				`UPDATE ledger_leaf l SET leaf_hash = sha256('\x00' || b.raw) FROM ledger_body b WHERE l.tenant = b.tenant AND l.stream = b.stream AND l.sseq = b.sseq AND b.tenant = 'tenant_1' AND b.sseq = 1555`,
			},
			[]Problem{
				span(Tampered, 600, 1299, "the leaves do not come to the signed root of size 1300"),
				span(Tampered, 768, 1023, "the subtree's stored hash is not that of its leaves"),
				span(Tampered, 0, 1299, "the tree's head is not that of its leaves"),
			},
		},
		"a leaf's hash": {
			[]string{`UPDATE ledger_leaf SET leaf_hash = '\x1234'` + row},
			[]Problem{leaf(Tampered, "the raw bytes do not hash to the leaf"), leaf(Tampered, "the leaf's hash is damaged"), span(Unverifiable, 777, 1299, "signed roots up to size 1300 cannot be computed")},
		},
		"a column": {
			[]string{`UPDATE ledger_body SET actor = 'somebody'` + row},
			[]Problem{leaf(Tampered, `actor is "somebody", and the raw bytes say "agent_1"`)},
		},
		"the time": {
			[]string{`UPDATE ledger_body SET time = '2020-01-01Z'` + row},
			[]Problem{leaf(Tampered, "time is 2020-01-01 00:00:00 +0000 UTC, and the raw bytes say 2026-11-30 12:00:00.001555 +0000 UTC")},
		},
		"the document": {
			[]string{`UPDATE ledger_body SET doc = jsonb_set(doc, '{data,n}', '1556')` + row},
			[]Problem{leaf(Tampered, "doc differs from the raw bytes")},
		},
		"an event id": {
			[]string{`UPDATE ledger_leaf SET event_id = 'evt_1'` + row},
			[]Problem{{Tampered, "tenant_1", activity, 777, 777, 1555, "evt_1", `the leaf's event id is "evt_1" and the body's is "evt_1555"`}},
		},
		"a body deleted": {
			[]string{`DELETE FROM ledger_body` + row},
			[]Problem{leaf(Incomplete, "the leaf's body is missing")},
		},
		"a leaf deleted": {
			[]string{`DELETE FROM ledger_leaf` + row},
			[]Problem{leaf(Incomplete, "the body's leaf row is missing")},
		},
		"an event deleted": {
			[]string{`DELETE FROM ledger_leaf` + row, `DELETE FROM ledger_body` + row},
			[]Problem{
				span(Incomplete, 777, 777, "leaf and body are missing: later roots cannot be computed"),
				span(Unverifiable, 777, 1299, "signed roots up to size 1300 cannot be computed"),
			},
		},
		"two events exchanged": {
			[]string{`UPDATE ledger_leaf SET tseq = -1 ` + tree + ` AND tseq = 777`, `UPDATE ledger_leaf SET tseq = 777 ` + tree + ` AND tseq = 778`, `UPDATE ledger_leaf SET tseq = 778 ` + tree + ` AND tseq = -1`},
			nil, // many; the verdict counts
		},
		"the end cut off": {
			[]string{`DELETE FROM ledger_leaf` + tree + ` AND tseq >= 1290`, `DELETE FROM ledger_body` + tree + ` AND tseq >= 1290`},
			[]Problem{
				span(Incomplete, 1290, 1299, "the tree's head counts leaves that are missing"),
				span(Incomplete, 1290, 1299, "a checkpoint of size 1300 is signed, and there are 1290 leaves"),
			},
		},
		"an event put in": {
			[]string{
				`INSERT INTO ledger_leaf SELECT tenant, stream, 1300, 'evt_new', 9999, leaf_hash FROM ledger_leaf` + row,
				`INSERT INTO ledger_body (tenant, stream, sseq, tseq, event_id, subject, raw, stored_at) SELECT tenant, stream, 9999, 1300, 'evt_new', subject, raw, stored_at FROM ledger_body` + row,
			},
			nil,
		},
		"a body put in": {
			[]string{`INSERT INTO ledger_body (tenant, stream, sseq, tseq, event_id, subject, raw, stored_at) SELECT tenant, stream, 1556, 777, 'evt_new', subject, raw, stored_at FROM ledger_body` + row},
			[]Problem{{Tampered, "tenant_1", activity, 777, 777, 1556, "evt_new", "the body is none of the tree's"}},
		},
		"the head": {
			[]string{`UPDATE ledger_tree SET peaks = set_byte(peaks, 0, 1 - sign(get_byte(peaks, 0))::int)` + tree},
			[]Problem{span(Tampered, 0, 1299, "the tree's head is not that of its leaves")},
		},
		"a stored subtree": {
			[]string{`UPDATE ledger_hash SET hash = sha256(hash)` + tree + ` AND n = 2`},
			[]Problem{span(Tampered, 512, 767, "the subtree's stored hash is not that of its leaves")},
		},
		"a stored subtree deleted": {
			[]string{`DELETE FROM ledger_hash` + tree + ` AND n = 2`},
			[]Problem{span(Incomplete, 512, 767, "the subtree's stored hash is missing")},
		},
		"a checkpoint's root": {
			[]string{`UPDATE ledger_checkpoint SET root = sha256(root)` + tree + ` AND size = 600`},
			[]Problem{span(Tampered, 0, 599, "the checkpoint of size 600 is signed for another size or root")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := filled(t)
			for _, sql := range fault.sql {
				tamper(t, s, sql)
			}
			r := verify(t, s, "tenant_1", trust())
			if fault.want == nil && r.Verdict() != Tampered {
				t.Errorf("%s\n%v", r.Verdict(), r.Problems)
			}
			if fault.want != nil && !sameProblems(r.Problems, fault.want) {
				t.Errorf("got:")
				for _, p := range r.Problems {
					t.Errorf("  %s", p)
				}
			}
			if clean := verify(t, s, "tenant_0", trust()); clean.Verdict() != Intact {
				t.Errorf("the other tenant: %s %v", clean.Verdict(), clean.Problems)
			}
		})
	}
}

func sameProblems(got, want []Problem) bool {
	text := func(list []Problem) (all []string) {
		for _, p := range list {
			all = append(all, p.String())
		}
		slices.Sort(all)
		return all
	}
	return slices.Equal(text(got), text(want))
}

// TestEveryBit flips bits all over one event's bytes.
func TestEveryBit(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ingest(t, s, records(1, 20, 1))
	checkpoint(t, s, key)
	size := count(t, s, `SELECT 8 * length(raw) FROM ledger_body WHERE sseq = 7`)
	for bit := int64(0); bit < size; bit += 13 {
		flip := fmt.Sprintf(`UPDATE ledger_body SET raw = set_bit(raw, %d, 1 - get_bit(raw, %d)) WHERE sseq = 7`, bit, bit)
		tamper(t, s, flip)
		if r := verify(t, s, "tenant_0", trust()); r.Verdict() != Tampered || r.Problems[0].EventID != "evt_7" || r.Problems[0].First != 6 {
			t.Errorf("bit %d: %s %v", bit, r.Verdict(), r.Problems)
		}
		tamper(t, s, flip)
	}
	if r := verify(t, s, "tenant_0", trust()); r.Verdict() != Intact {
		t.Errorf("flipped back: %v", r.Problems)
	}
}

func TestWhoSigned(t *testing.T) {
	t.Parallel()
	s := setup(t)
	if r := verify(t, s, "tenant_0", trust()); r.Verdict() != Unverifiable {
		t.Errorf("nothing recorded: %s", r.Verdict())
	}
	ingest(t, s, records(1, 50, 1))
	if r := verify(t, s, "tenant_0", trust()); r.Verdict() != Unverifiable || r.Problems[0].What != "no checkpoint is signed yet" {
		t.Errorf("no checkpoint: %s %v", r.Verdict(), r.Problems)
	}
	checkpoint(t, s, other)
	ingest(t, s, records(51, 60, 1))
	checkpoint(t, s, other, key) // the key is replaced: both sign
	ingest(t, s, records(61, 70, 1))
	checkpoint(t, s, key)
	if r := verify(t, s, "tenant_0", trust()); r.Verdict() != Unverifiable || r.Streams[0].Checkpoints != 2 {
		t.Errorf("the old key is not known: %s %v", r.Verdict(), r.Problems)
	}
	both := trust()
	both.Keys = append(both.Keys, public(other))
	if r := verify(t, s, "tenant_0", both); r.Verdict() != Intact || r.Streams[0].Checkpoints != 3 {
		t.Errorf("both keys: %s %v", r.Verdict(), r.Problems)
	}

	// A forger without the key signs what he made of it under our name.
	forged, err := merkle.Sign(merkle.Checkpoint{Origin: merkle.Origin("example.org", "tenant_0", activity), Size: 50}, other)
	if err != nil {
		t.Fatal(err)
	}
	tamper(t, s, `UPDATE ledger_checkpoint SET note = $1, root = $2 WHERE size = 50`, forged, make([]byte, 32))
	if r := verify(t, s, "tenant_0", both); r.Verdict() != Tampered {
		t.Errorf("another root under a known key: %s %v", r.Verdict(), r.Problems)
	}
	if r := verify(t, s, "tenant_0", trust()); r.Verdict() != Unverifiable {
		t.Errorf("a signature of a stranger: %s %v", r.Verdict(), r.Problems)
	}
	tamper(t, s, `UPDATE ledger_checkpoint SET note = 'hello' WHERE size = 70`)
	if r := verify(t, s, "tenant_0", trust()); r.Verdict() != Tampered {
		t.Errorf("no note at all: %s %v", r.Verdict(), r.Problems)
	}
}

// TestPublished: the end is cut off with everything in the database that tells of it.
func TestPublished(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ingest(t, s, records(1, 100, 2))
	checkpoint(t, s, key)
	ingest(t, s, records(101, 140, 2))
	with := trust()
	with.Published = checkpoint(t, s, key)

	if r := verify(t, s, "tenant_1", with); r.Verdict() != Intact || r.Streams[0].Checkpoints != 3 {
		t.Fatalf("untouched: %s %v", r.Verdict(), r.Problems)
	}
	short := setup(t) // as if the last forty events had never been
	ingest(t, short, records(1, 100, 2))
	checkpoint(t, short, key)
	if r := verify(t, short, "tenant_1", trust()); r.Verdict() != Intact {
		t.Fatalf("the database alone cannot show it: %s %v", r.Verdict(), r.Problems)
	}
	if r := verify(t, short, "tenant_1", with); r.Verdict() != Incomplete || r.Problems[0].First != 50 || r.Problems[0].Last != 69 {
		t.Errorf("cut off: %s %v", r.Verdict(), r.Problems)
	}
	if r := verify(t, setup(t), "tenant_1", with); r.Verdict() != Incomplete {
		t.Errorf("all gone: %s %v", r.Verdict(), r.Problems)
	}

	for i, note := range with.Published {
		with.Published[i] = []byte(strings.Replace(string(note), "\n70\n", "\n71\n", 1))
	}
	if _, err := s.Verify(t.Context(), "tenant_1", with); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("a published checkpoint that was changed is believed: %v", err)
	}
}

func TestAppendOnly(t *testing.T) {
	t.Parallel()
	s := filled(t)
	for _, table := range []string{"ledger_leaf", "ledger_body", "ledger_checkpoint"} {
		for _, sql := range []string{`UPDATE %s SET tenant = 'x'`, `DELETE FROM %s`, `TRUNCATE %s`} {
			_, err := s.pool.Exec(t.Context(), fmt.Sprintf(sql, table))
			if err == nil || !strings.Contains(err.Error(), "the ledger only appends") {
				t.Errorf(sql+": %v", table, err)
			}
		}
	}
}

func TestReportIsBounded(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ingest(t, s, records(1, 3000, 1))
	checkpoint(t, s, key)
	tamper(t, s, `UPDATE ledger_body SET raw = raw || '\x20' WHERE sseq % 2 = 0`)
	if r := verify(t, s, "tenant_0", trust()); len(r.Problems) != maxProblems || r.ProblemCount != 1500 {
		t.Errorf("%d problems of %d", len(r.Problems), r.ProblemCount)
	}
	tamper(t, s, `UPDATE ledger_body SET raw = substr(raw, 1, length(raw) - 1) WHERE sseq % 2 = 0`)
	tamper(t, s, `DELETE FROM ledger_body WHERE sseq > 1000`)
	r := verify(t, s, "tenant_0", trust())
	if r.Verdict() != Incomplete || len(r.Problems) != 1 || r.Problems[0].First != 1000 || r.Problems[0].Last != 2999 {
		t.Errorf("bodies that were retired are one range: %s %v", r.Verdict(), r.Problems)
	}
}
