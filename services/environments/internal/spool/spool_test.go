package spool_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/execwarden/execwarden/services/environments/internal/spool"
)

// all reads a spool piece by piece from the start.
func all(t *testing.T, s *spool.Spool, step int) (data []byte, lost int64, streams map[spool.Stream][]byte) {
	t.Helper()
	streams = map[spool.Stream][]byte{}
	for at := int64(0); ; {
		pieces, err := s.Read(at, step)
		if err != nil {
			t.Fatal(err)
		}
		if len(pieces) == 0 {
			return data, lost, streams
		}
		for _, p := range pieces {
			if p.Offset != at {
				t.Fatalf("a piece at %d, want %d", p.Offset, at)
			}
			at = p.Next()
			lost += p.Lost
			data = append(data, p.Data...)
			streams[p.Stream] = append(streams[p.Stream], p.Data...)
		}
	}
}

// What came is what is read, whatever it is read in, here and by another process.
func TestByteExact(t *testing.T) {
	dir := t.TempDir()
	s := spool.Create(dir, 64<<20)
	var want []byte
	streams := map[spool.Stream][]byte{}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		b := make([]byte, rng.IntN(40_000))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		stream := spool.Stream(1 + rng.IntN(2))
		s.Write(stream, b)
		want = append(want, b...)
		streams[stream] = append(streams[stream], b...)
	}
	check := func(what string, s *spool.Spool, step int) {
		t.Helper()
		data, lost, by := all(t, s, step)
		if !bytes.Equal(data, want) || lost != 0 || !bytes.Equal(by[spool.Stdout], streams[spool.Stdout]) || !bytes.Equal(by[spool.Stderr], streams[spool.Stderr]) {
			t.Errorf("%s: %d bytes (%d lost), want %d", what, len(data), lost, len(want))
		}
	}
	check("in large steps", s, 1<<20)
	check("in small steps", s, 777)
	sum := sha256.Sum256(want)
	if got := s.Totals(); got.SHA256 != hex.EncodeToString(sum[:]) || got.Size != int64(len(want)) || got.Lost != 0 || got.Fault != nil {
		t.Errorf("totals %+v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := spool.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	check("by another process", again, 5000)
}

// Beyond the limit head and tail stay, and what is between them is one gap that says how much.
func TestHeadAndTail(t *testing.T) {
	dir := t.TempDir()
	s := spool.Create(dir, 8<<20)
	total := int64(0)
	for i := range 3000 {
		b := bytes.Repeat([]byte{byte(i)}, 10_000)
		s.Write(spool.Stdout, b)
		total += int64(len(b))
	}
	data, lost, _ := all(t, s, 1<<20)
	if int64(len(data))+lost != total || lost == 0 || data[0] != 0 || data[len(data)-1] != byte(2999%256) {
		t.Fatalf("%d kept, %d lost of %d", len(data), lost, total)
	}
	if got := s.Totals(); got.Lost != lost || got.Size != total {
		t.Errorf("totals %+v, want %d lost", got, lost)
	}
	var used int64
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		used += info.Size()
	}
	if used > 10<<20 {
		t.Errorf("%d bytes on disk", used)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := spool.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if data, lost2, _ := all(t, again, 1<<20); int64(len(data))+lost2 != total || lost2 != lost {
		t.Errorf("read again: %d kept, %d lost", len(data), lost2)
	}
}

// A disk that takes no more loses output and stops nothing.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	s := spool.Create(dir, 64<<20)
	s.Write(spool.Stdout, []byte("kept"))
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil { // no segment can be made any more
		t.Fatal(err)
	}
	b := make([]byte, 3<<20)
	s.Write(spool.Stderr, b)
	got := s.Totals()
	if got.Fault == nil || got.Size != int64(len(b))+4 || got.Lost == 0 {
		t.Errorf("totals %+v", got)
	}
}

// A record that the end of its writer cut off is left out, and no more than it.
func TestCutOff(t *testing.T) {
	dir := t.TempDir()
	s := spool.Create(dir, 64<<20)
	s.Write(spool.Stdout, []byte("whole"))
	s.Write(spool.Stderr, []byte("cut off"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "0.seg")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw[:len(raw)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := spool.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if data, lost, _ := all(t, again, 100); string(data) != "whole" || lost != 0 {
		t.Errorf("%q, %d lost", data, lost)
	}
}

// What is dropped is a gap, and takes no place.
func TestDrop(t *testing.T) {
	dir := t.TempDir()
	s := spool.Create(dir, 64<<20)
	s.Write(spool.Stdout, []byte("something"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.Drop()
	data, lost, _ := all(t, s, 100)
	if left, _ := os.ReadDir(dir); len(data) != 0 || lost != 9 || len(left) != 0 || s.Totals().Size != 9 {
		t.Errorf("%q, %d lost, %v left, %+v", data, lost, left, s.Totals())
	}
}
