package fakegithub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// comments is an append-only list, and its file one line of JSON for each.
type comments struct {
	mu   sync.Mutex
	list []comment
	file *os.File // nil: in memory only
}

type comment struct {
	Repo      string `json:"repo"` // "owner/name"
	Number    int    `json:"number"`
	ID        int64  `json:"id"`
	Author    string `json:"author"`
	Body      string `json:"body"`
	CreatedAt string `json:"created_at"`
}

func openComments(path string) (*comments, error) {
	c := &comments{}
	if path == "" {
		return c, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	c.file = file
	if err := c.load(); err != nil {
		file.Close()
		return nil, fmt.Errorf("comments file: %w", err)
	}
	return c, nil
}

// load reads the file, and cuts off what a killed server wrote of its last line: that comment was never answered for.
func (c *comments) load() error {
	raw, err := io.ReadAll(c.file)
	if err != nil {
		return err
	}
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	for line := range bytes.Lines(whole) {
		var one comment
		if err := json.Unmarshal(line, &one); err != nil {
			return err
		}
		c.list = append(c.list, one)
	}
	if err := c.file.Truncate(int64(len(whole))); err != nil {
		return err
	}
	_, err = c.file.Seek(0, io.SeekEnd)
	return err
}

func (c *comments) add(i Issue, author, body string) (comment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := comment{i.Owner + "/" + i.Repo, i.Number, 492700400 + int64(len(c.list)), author, body, time.Now().UTC().Format(time.RFC3339)}
	if c.file != nil {
		line, err := json.Marshal(one)
		if err != nil {
			return comment{}, err
		}
		if _, err := c.file.Write(append(line, '\n')); err != nil {
			return comment{}, err
		}
		if err := c.file.Sync(); err != nil {
			return comment{}, err
		}
	}
	c.list = append(c.list, one)
	return one, nil
}

func (c *comments) all() []comment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

func (c *comments) of(i Issue) []comment {
	return slices.DeleteFunc(c.all(), func(one comment) bool {
		return !strings.EqualFold(one.Repo, i.Owner+"/"+i.Repo) || one.Number != i.Number
	})
}

func (c *comments) close() error {
	if c.file == nil {
		return nil
	}
	if err := c.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil // closed before
}
