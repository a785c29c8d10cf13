// Package spool keeps what a command prints, byte for byte and in the order in which it came, until whoever reads it has.
// It never makes the command wait for a reader. Beyond its limit it keeps the head and the tail, and says what is lost
// between them.
package spool

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Stream is where output came from.
type Stream byte

// The streams. A Gap stands for bytes that are not kept.
const (
	Stdout Stream = 1
	Stderr Stream = 2
	Gap    Stream = 3
)

// Piece is output of one stream. Offsets count the bytes of both streams together, from 0, lost ones too.
type Piece struct {
	Stream Stream
	Offset int64
	Data   []byte
	Lost   int64 // of a Gap
}

// Next is the offset after the piece.
func (p Piece) Next() int64 { return p.Offset + int64(len(p.Data)) + p.Lost }

const (
	headerSize  = 5 // stream, length
	maxRecord   = 32 << 10
	segmentSize = 1 << 20
	suffix      = ".seg"
)

// Spool is one command's output on disk, in segments named by the offset that they start at.
type Spool struct {
	dir   string
	limit int64

	mu       sync.Mutex
	segments []segment
	current  *os.File
	size     int64 // bytes that came
	lost     int64
	sum      hash.Hash
	fault    error // of the disk; output goes on being counted, and is lost
	closed   bool
	changed  chan struct{} // closed and replaced when something came
}

type segment struct {
	start, end int64 // offsets of output
	file       int64 // bytes of the file
}

// Create makes a spool in a directory that is there. limit is in bytes of output.
func Create(dir string, limit int64) *Spool {
	return &Spool{dir: dir, limit: max(limit, 4*segmentSize), sum: sha256.New(), changed: make(chan struct{})}
}

// Open reads back a spool that another process wrote. A record that was cut off by its end is left out.
func Open(dir string) (*Spool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	s := &Spool{dir: dir, closed: true, sum: sha256.New(), changed: make(chan struct{})}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		start, err := strconv.ParseInt(name, 10, 64)
		if !ok || err != nil {
			continue
		}
		one := segment{start: start, end: start}
		if err := each(filepath.Join(dir, e.Name()), func(_ Stream, data []byte) bool {
			one.end += int64(len(data))
			return true
		}); err != nil {
			return nil, err
		}
		s.segments = append(s.segments, one)
	}
	slices.SortFunc(s.segments, func(a, b segment) int { return int(a.start - b.start) })
	for _, g := range s.segments {
		s.lost += g.start - s.size
		s.size = g.end
	}
	return s, nil
}

// each gives the records of a segment until more says no.
func each(path string, more func(Stream, []byte) bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var head [headerSize]byte
	buffer := make([]byte, maxRecord)
	for {
		if _, err := io.ReadFull(f, head[:]); err != nil {
			return nil // the end, or a record that was cut off
		}
		n := binary.BigEndian.Uint32(head[1:])
		if n > maxRecord || head[0] != byte(Stdout) && head[0] != byte(Stderr) {
			return errors.New("the spool " + path + " is damaged")
		}
		if _, err := io.ReadFull(f, buffer[:n]); err != nil {
			return nil
		}
		if !more(Stream(head[0]), buffer[:n]) {
			return nil
		}
	}
}

// Write takes output as it comes. It fails never: what the disk does not take is lost, and counted as such.
func (s *Spool) Write(stream Stream, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(data) > 0 {
		n := min(len(data), maxRecord)
		s.append(stream, data[:n])
		data = data[n:]
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Spool) append(stream Stream, data []byte) {
	s.sum.Write(data)
	at := s.size
	s.size += int64(len(data))
	if s.fault == nil && (s.current == nil || s.segments[len(s.segments)-1].file > segmentSize) {
		s.fault = s.roll(at)
	}
	if s.fault == nil {
		record := make([]byte, headerSize, headerSize+len(data))
		record[0] = byte(stream)
		binary.BigEndian.PutUint32(record[1:], uint32(len(data)))
		_, s.fault = s.current.Write(append(record, data...))
	}
	if s.fault != nil {
		s.lost += int64(len(data))
		return
	}
	g := &s.segments[len(s.segments)-1]
	g.end, g.file = s.size, g.file+int64(headerSize+len(data))
}

// roll begins a segment, and drops the oldest one after the head when there is too much.
func (s *Spool) roll(at int64) error {
	if s.current != nil {
		if err := s.current.Close(); err != nil {
			return err
		}
		s.current = nil
	}
	kept := int64(0)
	for _, g := range s.segments {
		kept += g.end - g.start
	}
	head := int(s.limit / segmentSize / 2)
	for kept+segmentSize > s.limit && len(s.segments) > head+1 {
		g := s.segments[head]
		if err := os.Remove(s.path(g)); err != nil {
			return err
		}
		s.segments = slices.Delete(s.segments, head, head+1)
		kept -= g.end - g.start
		s.lost += g.end - g.start
	}
	f, err := os.OpenFile(s.path(segment{start: at}), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	s.current = f
	s.segments = append(s.segments, segment{start: at, end: at})
	return nil
}

func (s *Spool) path(g segment) string {
	return filepath.Join(s.dir, strconv.FormatInt(g.start, 10)+suffix)
}

// Close says that nothing more comes.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	close(s.changed)
	s.changed = make(chan struct{})
	if s.current == nil {
		return nil
	}
	err := errors.Join(s.current.Sync(), s.current.Close())
	s.current = nil
	return err
}

// Drop lets go of everything that is kept: what is read from then on is one gap.
func (s *Spool) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.segments {
		_ = os.Remove(s.path(g)) // one that stays is not looked for any more
	}
	s.segments, s.lost = nil, s.size
}

// Totals are what a spool amounts to.
type Totals struct {
	Size, Lost int64
	SHA256     string // of everything that came, in order
	Fault      error  // of the disk
}

// Totals gives them as they stand.
func (s *Spool) Totals() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Totals{s.size, s.lost, hex.EncodeToString(s.sum.Sum(nil)), s.fault}
}

// Changed is closed when something comes after the call, or the end.
func (s *Spool) Changed() (ch <-chan struct{}, size int64, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed, s.size, s.closed
}

// Read gives output from an offset on, at most about limit bytes. A part that is not kept any more is a Gap.
func (s *Spool) Read(after int64, limit int) ([]Piece, error) {
	s.mu.Lock()
	segments, size := slices.Clone(s.segments), s.size
	s.mu.Unlock()
	var out []Piece
	at := max(after, 0)
	gap := func(to int64) {
		if to > at {
			out = append(out, Piece{Stream: Gap, Offset: at, Lost: to - at})
			at = to
		}
	}
	for _, g := range segments {
		if g.end <= at || limit <= 0 {
			continue
		}
		gap(min(g.start, size))
		offset := g.start
		err := each(s.path(g), func(stream Stream, data []byte) bool {
			start := offset
			offset += int64(len(data))
			if offset <= at || start >= g.end {
				return start < g.end
			}
			part := data[at-start:]
			part = slices.Clone(part[:min(len(part), limit)])
			out = join(out, Piece{Stream: stream, Offset: at, Data: part})
			at += int64(len(part))
			limit -= len(part)
			return limit > 0
		})
		if errors.Is(err, os.ErrNotExist) {
			continue // it was dropped meanwhile; the next one tells of the gap
		}
		if err != nil {
			return nil, err
		}
	}
	if limit > 0 {
		gap(size)
	}
	return out, nil
}

// join adds a piece, to the one before where they are of one stream.
func join(out []Piece, p Piece) []Piece {
	if n := len(out); n > 0 && out[n-1].Stream == p.Stream && out[n-1].Next() == p.Offset {
		out[n-1].Data = append(out[n-1].Data, p.Data...)
		return out
	}
	return append(out, p)
}
