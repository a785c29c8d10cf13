// Package rpc asks services questions and answers them, over the NATS micro framework, so that `nats micro ls` and
// `nats micro stats` show every service.
package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
)

// Bounds of a service's RPCs.
const (
	MaxRequest    = 512 << 10
	maxConcurrent = 256 // more are answered busy
	defaultWait   = 10 * time.Second
)

// Caller is who asks: the service, known from the subject that the server let it use, and the identity that it
// speaks for. The edge authenticated that identity; the answering service checks the tenant again.
type Caller struct {
	Service schemas.Service `json:"-"`
	Tenant  id.Tenant       `json:"tenant"`
	Actor   string          `json:"actor"`
	Role    string          `json:"role,omitempty"`
}

type question struct {
	Caller
	Body json.RawMessage `json:"body"`
}

type answer struct {
	Life    string          `json:"life"` // of the instance that answers
	Problem *problem.Detail `json:"problem,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// Server answers a service's RPCs.
type Server struct {
	conn    *bus.Conn
	service schemas.Service
	log     *slog.Logger
	micro   micro.Service
	ctx     context.Context
	cancel  context.CancelFunc
	slots   chan struct{}
	running sync.WaitGroup
}

// NewServer announces the service on the bus.
func NewServer(conn *bus.Conn, service schemas.Service, version string, log *slog.Logger) (*Server, error) {
	m, err := micro.AddService(conn.NC, micro.Config{
		Name: string(service), Version: version, Description: "ExecWarden " + string(service),
		Metadata: map[string]string{"instance": conn.Instance()},
	})
	if err != nil {
		return nil, fmt.Errorf("rpc server of %s: %w", service, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{conn: conn, service: service, log: log, micro: m, ctx: ctx, cancel: cancel, slots: make(chan struct{}, maxConcurrent)}, nil
}

// Close stops taking questions and waits for those being answered.
func (s *Server) Close() {
	if err := s.micro.Stop(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		s.log.Warn("rpc stop", "err", err)
	}
	s.cancel()
	s.running.Wait()
}

// Method is one RPC and how it is answered; see On.
type Method func(*Server) error

// On answers method by decide.
func On[Q, A any](method string, decide func(context.Context, Caller, Q) (A, error)) Method {
	return func(s *Server) error { return Handle(s, method, decide) }
}

// Serve announces the service and answers its methods until Close.
func Serve(conn *bus.Conn, service schemas.Service, version string, log *slog.Logger, methods ...Method) (*Server, error) {
	s, err := NewServer(conn, service, version, log)
	if err != nil {
		return nil, err
	}
	for _, m := range methods {
		if err := m(s); err != nil {
			s.Close()
			return nil, err
		}
	}
	// Until the server has the subscriptions, a question is answered as if nobody were here.
	if err := conn.NC.FlushTimeout(5 * time.Second); err != nil {
		s.Close()
		return nil, problem.Wrap(err, problem.Unavailable, "the bus did not take %s's endpoints", service)
	}
	return s, nil
}

// Handle answers method, which has to be in the catalogue of RPCs.
func Handle[Q, A any](s *Server, method string, decide func(context.Context, Caller, Q) (A, error)) error {
	asking, ok := schemas.FindAsking(s.service, method)
	if !ok {
		return fmt.Errorf("rpc: %s.%s is not in the catalogue", s.service, method)
	}
	options := []micro.EndpointOpt{micro.WithEndpointSubject(bus.RPCSubject(string(s.service), method, "*"))}
	if asking.Each() {
		options = append(options, micro.WithEndpointQueueGroupDisabled())
	}
	err := s.micro.AddEndpoint(strings.ReplaceAll(method, "_", "-"), micro.HandlerFunc(func(r micro.Request) {
		if !s.admit(r) {
			return
		}
		s.running.Go(func() {
			defer func() { <-s.slots }()
			serve(s, method, r, decide)
		})
	}), options...)
	if err != nil {
		return fmt.Errorf("rpc %s.%s: %w", s.service, method, err)
	}
	return nil
}

// admit refuses what no caller of ours would send: an answer routed into JetStream (a push consumer delivering
// into this subject looks like that), too large a question, or one too many.
func (s *Server) admit(r micro.Request) bool {
	if strings.HasPrefix(r.Reply(), "$JS.") || r.Reply() == "" {
		s.log.Warn("rpc refused: not a question", "subject", r.Subject())
		return false
	}
	if len(r.Data()) > MaxRequest {
		respond(s, r, nil, problem.New(problem.TooLarge, "the request is over %d bytes", MaxRequest))
		return false
	}
	select {
	case s.slots <- struct{}{}:
		return true
	default:
		respond(s, r, nil, problem.New(problem.Busy, "%s answers %d questions already; try again", s.service, maxConcurrent))
		return false
	}
}

func serve[Q, A any](s *Server, method string, r micro.Request, decide func(context.Context, Caller, Q) (A, error)) {
	ctx, cancel := context.WithTimeout(bus.Extract(s.ctx, nats.Header(r.Headers())), time.Minute)
	defer cancel()
	ctx, span := otel.Tracer("execwarden/rpc").Start(ctx, string(s.service)+"."+method, trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()

	defer func() {
		// One question must not end the process, and with it everybody else's work.
		if cause := recover(); cause != nil {
			s.log.ErrorContext(ctx, "rpc panic", "method", method, "cause", cause, "stack", string(debug.Stack()))
			respond(s, r, nil, problem.New(problem.Internal, "an internal fault; the service's log has the cause"))
		}
	}()
	var q question
	var body Q
	err := decode(r.Data(), &q)
	if err == nil {
		err = decode(q.Body, &body)
	}
	if err != nil {
		respond(s, r, nil, problem.Wrap(err, problem.Invalid, "the request is not what %s.%s takes", s.service, method))
		return
	}
	// A tenant becomes part of subjects: "*" would read everybody's.
	if _, err := id.Parse[id.Tenant](string(q.Tenant)); err != nil {
		respond(s, r, nil, problem.Wrap(err, problem.Invalid, "the caller's tenant is not an id"))
		return
	}
	q.Service = schemas.Service(r.Subject()[strings.LastIndexByte(r.Subject(), '.')+1:])
	a, err := decide(ctx, q.Caller, body)
	if err != nil {
		span.SetStatus(codes.Error, string(problem.CodeOf(err)))
		if problem.CodeOf(err) == problem.Internal {
			s.log.ErrorContext(ctx, "rpc", "method", method, "err", err)
		}
	}
	respond(s, r, a, err)
}

func decode(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the JSON value")
	}
	return nil
}

func respond(s *Server, r micro.Request, body any, err error) {
	var a answer
	if err == nil {
		a.Body, err = json.Marshal(body)
	}
	if err == nil && int64(len(a.Body)) > s.conn.NC.MaxPayload()-1024 {
		err = problem.New(problem.TooLarge, "the answer is %d bytes, more than one message carries; ask for less", len(a.Body))
	}
	if err != nil {
		d := problem.DetailOf(err)
		a = answer{Problem: &d}
	}
	a.Life = s.conn.Life()
	raw, err := json.Marshal(a)
	if err == nil {
		err = r.Respond(raw)
	}
	if err != nil {
		s.log.Warn("rpc answer", "subject", r.Subject(), "err", err)
	}
}
