package rpc

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
)

// Ask asks service a question as caller and waits for the answer, at most 10 s when ctx has no deadline.
func Ask[A, Q any](ctx context.Context, conn *bus.Conn, service schemas.Service, method string, caller Caller, body Q) (A, error) {
	var zero A
	msg, err := ask(conn, service, method, caller, body)
	if err != nil {
		return zero, err
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultWait)
		defer cancel()
	}
	ctx, forget := conn.Guard(ctx, msg.Subject)
	defer forget()
	ctx, span := otel.Tracer("execwarden/rpc").Start(ctx, "ask "+string(service)+"."+method, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	bus.Inject(ctx, msg.Header)
	reply, err := conn.NC.RequestMsgWithContext(ctx, msg)
	switch {
	case problem.CodeOf(context.Cause(ctx)) == problem.BusDenied:
		return zero, context.Cause(ctx)
	case errors.Is(err, nats.ErrNoResponders):
		return zero, problem.Wrap(err, problem.Unavailable, "%s is not running", service)
	case err != nil && ctx.Err() != nil:
		return zero, problem.Wrap(err, problem.Timeout, "%s did not answer %s in time", service, method)
	case err != nil:
		return zero, problem.Wrap(err, problem.Unavailable, "the bus does not carry the question to %s now", service)
	}
	a, _, err := read[A](reply, service, method)
	return a, err
}

// AskEach asks every instance of a service, and hands each answer on until heard says that it has enough, or ctx ends,
// which is its error then. An instance is named by its connection's Life.
func AskEach[A, Q any](ctx context.Context, conn *bus.Conn, service schemas.Service, method string, caller Caller, body Q, heard func(life string, a A, err error) (enough bool)) error {
	msg, err := ask(conn, service, method, caller, body)
	if err != nil {
		return err
	}
	ctx, forget := conn.Guard(ctx, msg.Subject)
	defer forget()
	ctx, span := otel.Tracer("execwarden/rpc").Start(ctx, "ask each "+string(service)+"."+method, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	bus.Inject(ctx, msg.Header)
	msg.Reply = conn.NC.NewInbox()
	answers, err := conn.NC.SubscribeSync(msg.Reply)
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "the bus takes no question now")
	}
	defer func() { _ = answers.Unsubscribe() }() // a connection that is gone has no subscription
	if err := conn.NC.PublishMsg(msg); err != nil {
		return problem.Wrap(err, problem.Unavailable, "the bus does not carry the question to %s now", service)
	}
	for {
		reply, err := answers.NextMsgWithContext(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, nats.ErrNoResponders):
			return problem.Wrap(err, problem.Unavailable, "%s is not running", service)
		case err != nil:
			return problem.Wrap(err, problem.Unavailable, "the bus does not carry answers of %s now", service)
		}
		a, life, err := read[A](reply, service, method)
		if heard(life, a, err) {
			return nil
		}
	}
}

func ask[Q any](conn *bus.Conn, service schemas.Service, method string, caller Caller, body Q) (*nats.Msg, error) {
	raw, err := json.Marshal(body)
	if err == nil {
		raw, err = json.Marshal(question{Caller: caller, Body: raw})
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the question to %s.%s cannot be written", service, method)
	}
	return &nats.Msg{Subject: bus.RPCSubject(string(service), method, conn.User()), Data: raw, Header: nats.Header{}}, nil
}

func read[A any](reply *nats.Msg, service schemas.Service, method string) (body A, life string, err error) {
	var a answer
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		return body, "", problem.Wrap(err, problem.Internal, "%s.%s answered with what cannot be read", service, method)
	}
	if a.Problem != nil {
		return body, a.Life, a.Problem.Err()
	}
	if err := json.Unmarshal(a.Body, &body); err != nil {
		var zero A
		return zero, a.Life, problem.Wrap(err, problem.Internal, "%s.%s answered with what cannot be read", service, method)
	}
	return body, a.Life, nil
}
