package merkle_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reference is a tree that tlog itself grows: every hash, by its index.
type reference []merkle.Hash

func (r reference) ReadHashes(indexes []int64) ([]merkle.Hash, error) {
	hashes := make([]merkle.Hash, len(indexes))
	for i, index := range indexes {
		if index >= int64(len(r)) {
			return nil, fmt.Errorf("no hash %d", index)
		}
		hashes[i] = r[index]
	}
	return hashes, nil
}

func (r *reference) grow(t testing.TB, n int64, leaf merkle.Hash) {
	t.Helper()
	hashes, err := tlog.StoredHashesForRecordHash(n, leaf, r)
	if err != nil {
		t.Fatal(err)
	}
	*r = append(*r, hashes...)
}

func leaf(n int64) merkle.Hash { return merkle.Leaf(fmt.Appendf(nil, "event %d", n)) }

func root(t testing.TB, size int64, r reference) merkle.Hash {
	t.Helper()
	h, err := tlog.TreeHash(size, r)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestFrontierIsTlog grows both trees side by side, and reloads ours from storage now and then.
func TestFrontierIsTlog(t *testing.T) {
	var ref reference
	f := new(merkle.Frontier)
	if f.Root() != root(t, 0, ref) || f.Root() != merkle.EmptyRoot {
		t.Fatal("the empty roots differ")
	}
	for n := range int64(700) {
		from := tlog.StoredHashCount(n)
		ref.grow(t, n, leaf(n))
		nodes := f.Append(leaf(n), nil)
		if int64(len(nodes)) != tlog.StoredHashCount(n+1)-from {
			t.Fatalf("leaf %d completes %d subtrees", n, len(nodes))
		}
		for _, node := range nodes {
			if ref[tlog.StoredHashIndex(node.Level, node.Index)] != node.Hash {
				t.Fatalf("leaf %d: subtree %d/%d differs", n, node.Level, node.Index)
			}
		}
		if f.Size() != n+1 || f.Root() != root(t, n+1, ref) {
			t.Fatalf("roots differ at size %d", n+1)
		}
		if n%7 == 0 {
			reloaded, err := merkle.NewFrontier(f.Size(), f.Peaks())
			if err != nil {
				t.Fatal(err)
			}
			f = reloaded
		}
	}
}

func TestFrontierRefusesWrongPeaks(t *testing.T) {
	for size, peaks := range map[int64]int{0: 1, 1: 0, 3: 1, 4: 2, -1: 0, -2: 63} {
		if _, err := merkle.NewFrontier(size, make([]merkle.Hash, peaks)); err == nil {
			t.Errorf("size %d with %d peaks was accepted", size, peaks)
		}
	}
}

func TestFold(t *testing.T) {
	var ref reference
	leaves := make([]merkle.Hash, 256)
	for n := range leaves {
		leaves[n] = leaf(int64(n))
		ref.grow(t, int64(n), leaves[n])
	}
	for size := 1; size <= 256; size *= 2 {
		if got, err := merkle.Fold(leaves[:size]); err != nil || got != root(t, int64(size), ref) {
			t.Errorf("%d leaves: %v, %v", size, got, err)
		}
	}
	for _, size := range []int{0, 3, 255} {
		if _, err := merkle.Fold(leaves[:size]); err == nil {
			t.Errorf("%d leaves are no complete subtree", size)
		}
	}
}

// TestProofs: every honest proof passes; with one bit changed anywhere it does not.
func TestProofs(t *testing.T) {
	var ref reference
	for n := range int64(300) {
		ref.grow(t, n, leaf(n))
	}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 300).Draw(t, "size")
		n := rapid.Int64Range(0, size-1).Draw(t, "leaf")
		top, _ := tlog.TreeHash(size, ref)

		in, err := merkle.ProveInclusion(size, n, ref)
		if err != nil {
			t.Fatal(err)
		}
		if err := in.Check(leaf(n), top); err != nil {
			t.Fatal(err)
		}
		if in.Check(leaf(n+1), top) == nil {
			t.Fatal("another leaf passes")
		}

		old := rapid.Int64Range(0, size).Draw(t, "old")
		oldTop, _ := tlog.TreeHash(old, ref)
		grew, err := merkle.ProveConsistency(old, size, ref)
		if err != nil {
			t.Fatal(err)
		}
		if err := grew.Check(oldTop, top); err != nil {
			t.Fatal(err)
		}
		bit := rapid.IntRange(0, 255).Draw(t, "bit")
		flip := func(h merkle.Hash) merkle.Hash { h[bit/8] ^= 1 << (bit % 8); return h }
		if grew.Check(flip(oldTop), top) == nil || (old > 0 && grew.Check(oldTop, flip(top)) == nil) {
			t.Fatal("another root passes")
		}
		for i := range in.Path {
			in.Path[i] = flip(in.Path[i])
			if in.Check(leaf(n), top) == nil {
				t.Fatal("another path passes")
			}
			in.Path[i] = flip(in.Path[i])
		}
	})
}

func TestProofsOfNothing(t *testing.T) {
	var ref reference
	ref.grow(t, 0, leaf(0))
	for size, n := range map[int64]int64{0: 0, 1: 1, 5: -1} {
		if _, err := merkle.ProveInclusion(size, n, ref); err == nil {
			t.Errorf("leaf %d of %d was proved", n, size)
		}
	}
	if _, err := merkle.ProveConsistency(2, 1, ref); err == nil {
		t.Error("a tree shrank")
	}
	for _, p := range []merkle.Inclusion{{Index: -1, Size: 1}, {Index: 1, Size: 1}, {Size: -5}, {Index: 1, Size: 1 << 62, Path: make([]merkle.Hash, 3)}} {
		if p.Check(leaf(0), leaf(0)) == nil {
			t.Errorf("%+v passes", p)
		}
	}
	for _, p := range []merkle.Consistency{{Old: 0, New: -1}, {Old: 0, New: 5, Path: make([]merkle.Hash, 1)}, {Old: 3, New: 2}} {
		if p.Check(merkle.EmptyRoot, leaf(0)) == nil {
			t.Errorf("%+v passes", p)
		}
	}
}

func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

func TestSignAndOpen(t *testing.T) {
	origin := merkle.Origin("example.org", "acme", "EW_ACTIVITY")
	want := merkle.Checkpoint{Origin: origin, Size: 1234, Root: leaf(1)}
	signed, err := merkle.Sign(want, key('a'), key('b'))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(signed), "example.org/ledger/acme/EW_ACTIVITY\n1234\n"+leaf(1).String()+"\n\n— example.org/ledger/acme/EW_ACTIVITY ") {
		t.Errorf("not a tlog-checkpoint:\n%s", signed)
	}
	for name, keys := range map[string][]ed25519.PublicKey{
		"the old key": {public(key('a'))}, "the new key": {public(key('b'))}, "one of several": {public(key('c')), public(key('b'))},
	} {
		if got, err := merkle.Open(origin, signed, keys...); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	// Tools that know nothing of us can check it too.
	text, err := merkle.VerifierKey(origin, public(key('a')))
	if err != nil {
		t.Fatal(err)
	}
	v, err := note.NewVerifier(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := note.Open(signed, note.VerifierList(v)); err != nil {
		t.Errorf("a plain note verifier: %v", err)
	}

	for name, fault := range map[string]struct {
		origin string
		signed []byte
		keys   []ed25519.PublicKey
		want   error
	}{
		"an unknown key":          {origin, signed, []ed25519.PublicKey{public(key('c'))}, merkle.ErrUnknownKey},
		"no key":                  {origin, signed, nil, merkle.ErrUnknownKey},
		"another size":            {origin, []byte(strings.Replace(string(signed), "1234", "1235", 1)), []ed25519.PublicKey{public(key('a'))}, merkle.ErrForged},
		"another tenant's":        {merkle.Origin("example.org", "evil", "EW_ACTIVITY"), signed, []ed25519.PublicKey{public(key('a'))}, merkle.ErrForged},
		"no note":                 {origin, []byte(origin + "\nhello"), []ed25519.PublicKey{public(key('a'))}, merkle.ErrMalformed},
		"a note about no tree":    {origin, signText(t, origin, origin+"\nhello\n"), []ed25519.PublicKey{public(key('a'))}, merkle.ErrMalformed},
		"a size with a plus":      {origin, signText(t, origin, origin+"\n+5\n"+leaf(1).String()+"\n"), []ed25519.PublicKey{public(key('a'))}, merkle.ErrMalformed},
		"a root of sixteen bytes": {origin, signText(t, origin, origin+"\n5\n"+base64.StdEncoding.EncodeToString(make([]byte, 16))+"\n"), []ed25519.PublicKey{public(key('a'))}, merkle.ErrMalformed},
	} {
		if _, err := merkle.Open(fault.origin, fault.signed, fault.keys...); !errors.Is(err, fault.want) {
			t.Errorf("%s: %v, want %v", name, err, fault.want)
		}
	}
	if _, err := merkle.Sign(merkle.Checkpoint{Origin: "with space/ledger"}, key('a')); err == nil {
		t.Error("a name that notes cannot carry was signed")
	}
	if _, err := merkle.Sign(want); err == nil {
		t.Error("a checkpoint without a signature was made")
	}
}

// signer signs any text under our key, as a thief of the key could.
type signer struct {
	note.Verifier
	key ed25519.PrivateKey
}

func (s signer) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.key, msg), nil }

func signText(t *testing.T, origin, text string) []byte {
	t.Helper()
	vkey, err := merkle.VerifierKey(origin, public(key('a')))
	if err != nil {
		t.Fatal(err)
	}
	v, err := note.NewVerifier(vkey)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := note.Sign(&note.Note{Text: text}, signer{v, key('a')})
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestCheckpointExtensionsAreAllowed(t *testing.T) {
	c := merkle.Checkpoint{Origin: "o", Size: 0, Root: merkle.EmptyRoot}
	if got, err := merkle.ParseCheckpoint(c.Text() + "extension\n"); err != nil || got != c {
		t.Errorf("%+v, %v", got, err)
	}
}

// FuzzParseCheckpoint: what parses has one spelling, up to extensions.
func FuzzParseCheckpoint(f *testing.F) {
	f.Add(merkle.Checkpoint{Origin: "o", Size: 3, Root: leaf(3)}.Text())
	f.Add("\n\n\n")
	f.Add("o\n-0\n" + leaf(1).String() + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := merkle.ParseCheckpoint(text)
		if err == nil && !strings.HasPrefix(text, c.Text()) {
			t.Errorf("%q reads as %q", text, c.Text())
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	f := new(merkle.Frontier)
	raw := make([]byte, 512)
	var nodes []merkle.Node
	for b.Loop() {
		nodes = f.Append(merkle.Leaf(raw), nodes[:0])
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "leaves/s")
}
