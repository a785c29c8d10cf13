package conformance

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed clients/login.mjs
var login []byte

// logins has the TypeScript clients log in from zero, with a person who consents in the console.
func (s *site) logins(ctx context.Context, t tree, try func(string, error)) error {
	script := filepath.Join(string(t), "login.mjs") // beside what it imports
	if err := os.WriteFile(script, login, 0o644); err != nil {
		return err
	}
	id, err := s.registerClient(ctx, "login", "http://127.0.0.1/callback")
	if err != nil {
		return err
	}
	p, err := s.seat(ctx)
	if err != nil {
		return err
	}
	for _, revision := range revisions {
		client := typescript[revision]
		try(fmt.Sprintf("TypeScript client %s, %s: OAuth from zero, list, call, a renewal, a revocation", client, revision), s.login(ctx, t, p, script, client, s.endpoint(revision), id))
	}
	return nil
}

func (s *site) login(ctx context.Context, t tree, p *person, script, client, endpoint, id string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	cmd := t.script(ctx, script, client, endpoint, id, strconv.Itoa(port))
	consented, ended := make(chan error, 1), false
	opened := 0
	cmd.Stdout = &lines{hear: func(line string) {
		at, open := strings.CutPrefix(line, "open ")
		switch {
		case open && opened == 0:
			opened++
			go func() {
				err := p.letIn(ctx, at, clientsAgent)
				if err != nil {
					give(err) // it would wait for ever
				}
				consented <- err
			}()
		case line == "ok":
			ended = true
		}
	}}
	var said bytes.Buffer
	cmd.Stderr = &said
	err = cmd.Run()
	if opened > 0 {
		err = errors.Join(<-consented, err)
	}
	if err != nil || !ended {
		return fmt.Errorf("it did not come through: %w: %.1500s", err, said.String())
	}
	return nil
}
