package postgres

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
)

// lineLog is the output of a Postgres program as log records. It remembers the last complaint, which says why a
// program ended.
type lineLog struct {
	log  *slog.Logger
	what string

	mu        sync.Mutex
	rest      []byte
	complaint string
}

// maxLine bounds what one line may hold back in memory.
const maxLine = 8 << 10

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found && len(l.rest) < maxLine {
			return len(p), nil
		}
		l.record(strings.TrimSpace(string(line)))
		l.rest = append(l.rest[:0], rest...)
		if !found {
			return len(p), nil
		}
	}
}

func (l *lineLog) record(line string) {
	if line == "" {
		return
	}
	level := slog.LevelDebug
	switch severity, text, _ := strings.Cut(line, ":"); severity {
	case "FATAL", "PANIC", "initdb":
		if strings.HasSuffix(text, "the database system is starting up") {
			break // said to us, who ask whether it is ready yet
		}
		l.complaint = strings.TrimSpace(text)
		level = slog.LevelWarn
	case "WARNING":
		level = slog.LevelWarn
	}
	if l.what == "initdb" && level == slog.LevelDebug {
		level = slog.LevelInfo // the steps of initdb are the progress that a person waits for
	}
	l.log.Log(context.Background(), level, line, "program", l.what)
}

// last returns the last complaint.
func (l *lineLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.complaint == "" && len(l.rest) > 0 {
		return strings.TrimSpace(string(l.rest))
	}
	if l.complaint == "" {
		return "it gave no reason"
	}
	return l.complaint
}
