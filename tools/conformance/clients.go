package conformance

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed clients/session.mjs
var session []byte

// typescript are the official clients, by the revision that they speak.
var typescript = map[string]string{"2025-11-25": "v1", "2026-07-28": "v2"}

// sessions has real clients list, call, be asked and wait for a person.
func (s *site) sessions(ctx context.Context, t tree) error {
	script := filepath.Join(string(t), "session.mjs") // beside what it imports
	if err := os.WriteFile(script, session, 0o644); err != nil {
		return err
	}
	var faults []error
	try := func(what string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", what, err))
			return
		}
		fmt.Fprintf(s.out, "%s: holds\n", what)
	}
	for _, revision := range revisions {
		client := typescript[revision]
		try(fmt.Sprintf("TypeScript client %s, %s: list, progress, elicitation, a refusal, an approval", client, revision), s.typescript(ctx, t, script, client, revision))
	}
	if err := s.logins(ctx, t, try); err != nil {
		return err
	}
	try("Inspector: list and call", s.inspector(ctx, t))
	try("Inspector over execwarden mcp stdio: list and call", s.overStdio(ctx, t))
	return errors.Join(faults...)
}

func (s *site) endpoint(revision string) string {
	return s.warden.At().API + "/mcp/c/" + connections[revision]
}

// typescript runs a session, and decides as a member when it says that a call waits.
func (s *site) typescript(ctx context.Context, t tree, script, client, revision string) error {
	cmd := t.script(ctx, script, client, s.endpoint(revision), elicits[revision])
	cmd.Env = append(os.Environ(), "TOKEN="+s.tokens[clientsAgent])
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	approved, ended := 0, false
	lines := bufio.NewScanner(out)
	for lines.Scan() && err == nil {
		line := lines.Text()
		address, held := strings.CutPrefix(line, "held ")
		switch {
		case held:
			approved++
			if err = s.quietly(ctx, "approvals", "approve", address[strings.LastIndexByte(address, '/')+1:], "--yes"); err == nil {
				_, err = io.WriteString(in, "decided\n")
			}
		case line == "ok":
			ended = true
		}
	}
	if err != nil {
		_ = in.Close() // the session ends, having heard no decision
	}
	if werr := cmd.Wait(); werr != nil {
		return errors.Join(err, fmt.Errorf("%w: %.1500s", werr, said.String()))
	}
	if err == nil && (!ended || approved != 1) {
		err = fmt.Errorf("the session ended after %d approvals without having come through: %.1500s", approved, said.String())
	}
	return err
}

// inspector lists and calls as a developer does at a terminal.
func (s *site) inspector(ctx context.Context, t tree) error {
	return s.listAndCall(ctx, t, "", s.endpoint("2025-11-25"), "--transport", "http", "--header", "Authorization: Bearer "+s.tokens[clientsAgent])
}

// overStdio does the same with the program as its server. All connections are served there, so names have theirs in front.
func (s *site) overStdio(ctx context.Context, t tree) error {
	return s.listAndCall(ctx, t, connections["2025-11-25"]+"__", s.program, "mcp", "stdio",
		"-e", "EXECWARDEN_URL="+s.warden.At().API, "-e", "EXECWARDEN_TOKEN_FILE="+filepath.Join(s.dir, clientsAgent+".token"))
}

func (s *site) listAndCall(ctx context.Context, t tree, prefix string, target ...string) error {
	ask := func(v any, args ...string) error {
		cmd := t.command(ctx, "mcp-inspector", slices.Concat([]string{"--cli"}, target, args)...)
		cmd.Env = append(os.Environ(), "HOME="+s.dir) // it keeps a catalogue there
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, v)
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %.500s %.1000s", args[1], err, out, said.String())
		}
		return nil
	}
	var listed struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := ask(&listed, "--method", "tools/list"); err != nil {
		return err
	}
	var names []string
	for _, tool := range listed.Tools {
		if name, ok := strings.CutPrefix(tool.Name, prefix); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if want := []string{"test_elicitation", "test_simple_text", "test_tool_with_progress"}; !slices.Equal(names, want) {
		return fmt.Errorf("it lists %v, and %v are granted", names, want)
	}
	var called struct {
		Content []struct {
			Type string `json:"type"`
		} `json:"content"`
		IsError bool `json:"isError"`
	}
	if err := ask(&called, "--method", "tools/call", "--tool-name", prefix+"test_tool_with_progress"); err != nil {
		return err
	}
	if called.IsError || len(called.Content) != 1 || called.Content[0].Type != "text" {
		return fmt.Errorf("it was answered %+v", called)
	}
	return nil
}
