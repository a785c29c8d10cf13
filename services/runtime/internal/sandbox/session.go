package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// session is one script in one worker.
type session struct {
	pool   *Pool
	worker *worker
	limits Limits
	host   Host
	result Result

	// The loop's own: only run and what it calls touch these.
	tools  map[string]bool
	fetch  bool
	seq    int
	open   int // requests without a reply
	logged int
	kept   int           // operations on artifacts
	sought int           // searches
	before chan struct{} // closed when the last operation on artifacts is over
	wall   *stopwatch
	sound  bool // the script came to its own end, and its worker may have another of its run

	heard   chan heard
	settled chan error // one per answered request; non-nil ends the run
	turns   *turnstile
	hosts   sync.WaitGroup
}

// heard is one message of the worker, or why there will be no other.
type heard struct {
	kind wire.Kind
	body []byte
	err  error
}

func newSession(p *Pool, w *worker, limits Limits, host Host) *session {
	return &session{
		pool: p, worker: w, limits: limits, host: host,
		result:  Result{Tier: w.report.Tier(), Isolation: w.report},
		heard:   make(chan heard),
		settled: make(chan error),
		turns:   newTurnstile(limits.Concurrent),
	}
}

// run takes the script to its result and measures it.
func (s *session) run(ctx context.Context, script Script) (Result, error) {
	started := time.Now()
	err := s.converse(ctx, script)
	s.result.Stats.Wall = time.Since(started)
	return s.result, err
}

// converse answers the worker until its last word, a limit, or the caller's end.
func (s *session) converse(ctx context.Context, script Script) error {
	s.fetch = script.Fetch
	s.tools = make(map[string]bool, len(script.Tools))
	for _, name := range script.Tools {
		s.tools[name] = true
	}
	callCtx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer func() {
		// Nothing of this script goes on after Run: calls are cancelled, the worker is dead or has said its last word, and
		// both are waited for; one that takes no replies, not for long.
		cancel()
		s.sound = s.sound && script.Run != ""
		if !s.sound {
			s.worker.kill()
		}
		impatient := time.AfterFunc(farewell, s.worker.kill)
		s.hosts.Wait()
		reading.Wait()
		s.sound = impatient.Stop() && s.sound
	}()

	total := time.NewTimer(s.limits.Total)
	defer total.Stop()
	greedy := time.NewTimer(greedyAfter)
	defer greedy.Stop()
	s.wall = newStopwatch(s.limits.Wall)
	defer s.wall.stop()

	s.worker.scripts++
	reading.Go(func() {
		s.say(callCtx, wire.Run{
			Source: script.Source, Input: script.Input, Seed: script.Seed, NowMilli: script.Now.UnixMilli(),
			Tools: script.Tools, Fetch: script.Fetch, Limits: s.limits,
		})
	})

	for {
		select {
		case h := <-s.heard:
			if h.err != nil {
				return s.death(h.err)
			}
			done, err := s.hear(callCtx, h)
			if done || err != nil {
				return err
			}
		case err := <-s.settled:
			if err != nil {
				return err
			}
			s.open--
			if s.open == 0 {
				s.wall.resume()
			}
		case <-s.wall.over():
			return &ScriptError{Code: CodeTimeout, Message: fmt.Sprintf("the script took its %s, without the time in calls", s.limits.Wall)}
		case <-greedy.C:
			if !s.giveWay() {
				greedy.Reset(greedyAfter)
			}
		case <-total.C:
			return &ScriptError{Code: CodeTimeout, Message: fmt.Sprintf("the script took its %s", s.limits.Total)}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// say sends the script and then reads the worker until its last word. Both are beside the loop, because
// a worker that is stuck would block them, and the loop has the clock.
func (s *session) say(ctx context.Context, run wire.Run) {
	tell := func(h heard) bool {
		select {
		case s.heard <- h:
			return h.err == nil
		case <-ctx.Done():
			return false
		}
	}
	if err := s.worker.conn.Send(wire.KindRun, run); err != nil {
		tell(heard{err: err})
		return
	}
	for {
		kind, body, err := s.worker.conn.Receive(s.allowed)
		if !tell(heard{kind, body, err}) || kind == wire.KindDone || kind == wire.KindFail {
			return
		}
	}
}

const (
	envelope = 16 << 10  // of a message around what its limit counts
	maxFail  = 128 << 10 // an error and its warnings
)

// allowed is the most that a message may have. What else may not come now, the loop knows.
func (s *session) allowed(k wire.Kind) int {
	switch k {
	case wire.KindCall:
		return s.limits.Args + envelope
	case wire.KindFetch:
		return s.limits.Request*4/3 + 128<<10 // base64, and headers
	case wire.KindSearch:
		return 6*maxSearch + envelope
	case wire.KindArtifact:
		return s.limits.Artifact*4/3 + envelope
	case wire.KindLog:
		return 6*s.limits.Logs + envelope // escaped
	case wire.KindDone:
		return s.limits.Result + maxFail
	case wire.KindFail:
		return maxFail
	}
	return 0
}

// hear acts on one message and says whether it was the last.
func (s *session) hear(ctx context.Context, h heard) (done bool, err error) {
	switch h.kind {
	case wire.KindCall:
		err = s.onCall(ctx, h.body)
	case wire.KindFetch:
		err = s.onFetch(ctx, h.body)
	case wire.KindSearch:
		err = s.onSearch(ctx, h.body)
	case wire.KindArtifact:
		err = s.onArtifact(ctx, h.body)
	case wire.KindLog:
		err = s.onLog(h.body)
	case wire.KindDone:
		done, err = true, s.onDone(h.body)
	case wire.KindFail:
		done, err = true, s.onFail(h.body)
	}
	if errors.Is(err, wire.ErrProtocol) {
		err = s.breach(err)
	}
	return done, err
}

func (s *session) onCall(ctx context.Context, body []byte) error {
	var call wire.Call
	if err := wire.Decode(body, &call); err != nil {
		return err
	}
	s.result.Calls++
	switch {
	case s.result.Calls > s.limits.Calls:
		return fmt.Errorf("%w: more than %d calls", wire.ErrProtocol, s.limits.Calls)
	case !s.tools[call.Tool]:
		return fmt.Errorf("%w: a call of a tool that was not named", wire.ErrProtocol)
	case len(call.Args) == 0 || len(call.Args) > s.limits.Args:
		return fmt.Errorf("%w: arguments of %d bytes", wire.ErrProtocol, len(call.Args))
	}
	return s.request(ctx, call.Seq, func() (wire.Reply, error) {
		value, err := s.host.CallTool(ctx, call)
		if err != nil {
			return wire.Reply{}, err
		}
		if len(value) == 0 {
			value = json.RawMessage("null")
		}
		if len(value) > s.limits.Result {
			return wire.Reply{Problem: &wire.Problem{Code: CodeResultTooLarge, Message: fmt.Sprintf(
				"the result of %s is %d bytes; the limit is %d: ask for less", call.Tool, len(value), s.limits.Result)}}, nil
		}
		if !json.Valid(value) {
			return wire.Reply{}, problem.New(problem.Internal, "the result of %s is not JSON", call.Tool)
		}
		return wire.Reply{Value: value}, nil
	})
}

func (s *session) onFetch(ctx context.Context, body []byte) error {
	var request wire.Fetch
	if err := wire.Decode(body, &request); err != nil {
		return err
	}
	s.result.Fetches++
	switch {
	case !s.fetch:
		return fmt.Errorf("%w: a fetch that is not enabled", wire.ErrProtocol)
	case s.result.Fetches > s.limits.Fetches:
		return fmt.Errorf("%w: more than %d fetches", wire.ErrProtocol, s.limits.Fetches)
	case len(request.Body) > s.limits.Request:
		return fmt.Errorf("%w: a body of %d bytes", wire.ErrProtocol, len(request.Body))
	}
	return s.request(ctx, request.Seq, func() (wire.Reply, error) {
		response, err := s.host.Fetch(ctx, request)
		if err != nil {
			if _, end := aborted(err); end {
				return wire.Reply{}, err
			}
			p := problemOf(err)
			switch problem.CodeOf(err) {
			case problem.Denied:
				p.Code = CodeFetchBlocked
			case problem.TooLarge:
				p.Code = CodeFetchTooLarge
			}
			return wire.Reply{Problem: p}, nil
		}
		if len(response.Body) > s.limits.Response {
			return wire.Reply{Problem: &wire.Problem{Code: CodeFetchTooLarge, Message: fmt.Sprintf(
				"the response is %d bytes; the limit is %d", len(response.Body), s.limits.Response)}}, nil
		}
		return wire.Reply{Response: &response}, nil
	})
}

// request has the host answer in a goroutine, in the order of issue when more wait than may run.
func (s *session) request(ctx context.Context, seq int, answer func() (wire.Reply, error)) error {
	return s.requestAfter(ctx, nil, seq, answer)
}

// requestAfter is request for one that waits for an earlier one, whose turn comes before; nil waits for nothing.
func (s *session) requestAfter(ctx context.Context, before <-chan struct{}, seq int, answer func() (wire.Reply, error)) error {
	if seq <= s.seq || seq > s.limits.Requests() {
		return fmt.Errorf("%w: request %d after %d of at most %d", wire.ErrProtocol, seq, s.seq, s.limits.Requests())
	}
	for s.seq++; s.seq < seq; s.seq++ {
		if err := s.host.Refused(s.seq); err != nil {
			if end, ok := aborted(err); ok {
				return end
			}
			return err
		}
	}
	if s.open++; s.open == 1 {
		s.wall.pause()
	}
	turn := s.turns.queue()
	s.hosts.Go(func() {
		settle := func(err error) {
			select {
			case s.settled <- err:
			case <-ctx.Done():
			}
		}
		if before != nil {
			select {
			case <-before:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return
		}
		reply, err := answer()
		s.turns.leave()
		if err != nil {
			if end, ok := aborted(err); ok {
				settle(end)
				return
			}
			reply = wire.Reply{Problem: problemOf(err)}
		}
		// The clock runs again before the reply is written: a worker that does not read it has to pay for that.
		settle(nil)
		reply.Seq = seq
		_ = s.worker.conn.Send(wire.KindReply, reply) // a dead worker is heard of by the reader
		s.host.Answered(seq)
	})
	return nil
}

// problemOf is what a script may see of an error.
func problemOf(err error) *wire.Problem {
	d := problem.DetailOf(err)
	return &wire.Problem{Code: string(d.Code), Message: d.Message}
}

func (s *session) onLog(body []byte) error {
	var log wire.Log
	if err := wire.Decode(body, &log); err != nil {
		return err
	}
	switch log.Level {
	case "debug", "info", "warn", "error":
	default:
		return fmt.Errorf("%w: log level %q", wire.ErrProtocol, log.Level)
	}
	const overhead = 16 // as the worker counts
	s.logged += len(log.Line) + overhead
	if s.logged > s.limits.Logs+1024 || !utf8.ValidString(log.Line) {
		return fmt.Errorf("%w: a log of %d bytes", wire.ErrProtocol, s.logged)
	}
	s.result.Logs = append(s.result.Logs, Line{Level: log.Level, Text: log.Line})
	s.host.Log(log.Level, log.Line)
	return nil
}

func (s *session) onDone(body []byte) error {
	var done wire.Done
	if err := wire.Decode(body, &done); err != nil {
		return err
	}
	if len(done.Value) == 0 || len(done.Value) > s.limits.Result {
		return fmt.Errorf("%w: a value of %d bytes", wire.ErrProtocol, len(done.Value))
	}
	s.result.Value = done.Value
	s.sound = s.open == 0
	s.account(done.Warnings, done.Usage)
	return nil
}

func (s *session) onFail(body []byte) error {
	var fail wire.Fail
	if err := wire.Decode(body, &fail); err != nil {
		return err
	}
	if !word.MatchString(fail.Code) {
		return fmt.Errorf("%w: code %.64q", wire.ErrProtocol, fail.Code)
	}
	s.account(fail.Warnings, fail.Usage)
	s.sound = s.open == 0 && !wire.Spoils(fail.Code)
	if fail.Code == CodeFault {
		s.pool.log.Error("a script engine failed", "message", fail.Message, "stderr", s.worker.stderr.String())
	}
	return &ScriptError{Code: fail.Code, Name: fail.Name, Message: fail.Message, Line: fail.Line, Col: fail.Col}
}

// word is what a code looks like, whoever made it.
var word = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

func (s *session) account(warnings []string, usage wire.Usage) {
	s.result.Warnings = warnings
	s.result.Stats.CPU = time.Duration(usage.CPUMicros) * time.Microsecond
	s.result.Stats.Heap = usage.HeapBytes
}

// breach is a worker that broke the protocol. The engine does not, so whoever holds the worker now is not the engine.
func (s *session) breach(err error) error {
	s.pool.log.Error("a script worker broke the protocol", "error", err)
	return &ScriptError{Code: CodeFault, Message: "the script worker failed"}
}

// farewell is how long a worker may take that has said its last word, or crashed, to print why and to take its replies.
const farewell = time.Second

// death says why a worker went away without a last word.
func (s *session) death(err error) error {
	if errors.Is(err, wire.ErrProtocol) {
		return s.breach(err)
	}
	wait := time.NewTimer(farewell)
	defer wait.Stop()
	select {
	case <-s.worker.exited:
	case <-wait.C: // it closed its socket and lives on
		s.worker.kill()
		<-s.worker.exited
	}
	code := causeOf(s.worker, s.limits)
	if code == CodeFault {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		s.pool.log.Error("a script worker died", "state", s.worker.end.String(), "stderr", s.worker.stderr.String(), "error", err)
	}
	return &ScriptError{Code: code, Message: deaths[code]}
}

var deaths = map[string]string{
	CodeMemory: "the script needs more memory than it may have",
	CodeStack:  "the script is nested too deeply",
	CodeCPU:    "the script used its processor time",
	CodeFault:  "the script worker failed",
}

// causeOf reads an exit. What a process prints as it dies is for operators and for this; it never reaches a tenant.
func causeOf(w *worker, limits Limits) string {
	words := w.stderr.String()
	for _, sign := range []struct{ text, code string }{
		{"stack exceeds", CodeStack},
		{"stack overflow", CodeStack},
		{"out of memory", CodeMemory},
		{"cannot allocate memory", CodeMemory},
		{"failed to create new OS thread", CodeMemory},
		{"cpu limit exceeded", CodeCPU},
	} {
		if strings.Contains(words, sign.text) {
			return sign.code
		}
	}
	if w.end != nil && w.end.UserTime()+w.end.SystemTime()-w.used >= limits.CPU {
		return CodeCPU
	}
	return CodeFault
}
