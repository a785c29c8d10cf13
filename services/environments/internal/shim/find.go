package shim

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/environments/internal/spool"
)

// find gives a command of this life, or the record of one of an earlier life. It is called with the lock held.
func (s *Shim) find(id string) (*command, error) {
	if c, ok := s.execs[id]; ok {
		return c, nil
	}
	if !token(id) {
		return nil, problem.New(problem.Invalid, "that is no command's id")
	}
	dir := s.dir(id)
	c := &command{dir: dir, done: make(chan struct{})}
	close(c.done)
	raw, err := os.ReadFile(filepath.Join(dir, exitFile))
	ended := err == nil
	if !ended {
		raw, err = os.ReadFile(filepath.Join(dir, receiptFile))
	}
	if errors.Is(err, os.ErrNotExist) {
		if _, statErr := os.Stat(dir); statErr == nil {
			_ = os.RemoveAll(dir) // its receipt was not whole, so it was not begun
		}
		return nil, problem.New(problem.NotFound, "there is no command %s", id)
	}
	if err == nil {
		err = json.Unmarshal(raw, &c.Exec)
	}
	if err == nil {
		c.spool, err = spool.Open(dir)
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the record of command %s cannot be read", id)
	}
	if !ended {
		t := c.spool.Totals()
		c.Ended, c.Reason, c.Code, c.Bytes, c.Lost = time.Now().UTC(), Lost, -1, t.Size, t.Lost
		c.Message = "the machine, or what looks after its commands, ended before this command did"
		if err := c.record(exitFile); err != nil {
			return nil, diskFault(err)
		}
	}
	s.execs[id] = c
	return c, nil
}

// forgetOldest makes room for another command. It is called with the lock held.
func (s *Shim) forgetOldest() bool {
	var oldest *command
	for _, c := range s.execs {
		if !c.Running() && (oldest == nil || c.Ended.Before(oldest.Ended)) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	delete(s.execs, oldest.ID) // its record stays on the disk
	return true
}

// dropOldOutput bounds what the output of ended commands takes of the disk. Their records stay. It is called with the lock
// held.
func (s *Shim) dropOldOutput() {
	var ended []*command
	for _, c := range s.execs {
		if !c.Running() {
			ended = append(ended, c)
		}
	}
	slices.SortFunc(ended, func(a, b *command) int { return b.Ended.Compare(a.Ended) })
	kept := int64(0)
	for _, c := range ended {
		if kept += c.Bytes - c.Lost; kept > keptOutput || time.Since(c.Ended) > keepFor {
			c.spool.Drop()
		}
	}
}

// RecordOf reads the record of a command's end in a shim's directory, also when there is no shim any more.
func RecordOf(dir, id string) (e Exec, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, "execs", id, exitFile))
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(raw, &e)
}
