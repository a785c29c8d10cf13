package bus

import (
	"context"
	"crypto/sha256"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
)

// startSpan begins the span of hearing an event. It belongs to the trace that the event correlates to: the one that
// began with the webhook or the request that all of it came from. Where the message came by another trace, such as the
// request in which a member approved, the span links to that one.
func startSpan(ctx context.Context, durable string, d Delivery, e schemas.Envelope) (context.Context, trace.Span) {
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attribute.String("messaging.system", "nats"), attribute.String("messaging.destination.name", d.Subject),
			attribute.Int64("execwarden.sequence", int64(d.Seq)), attribute.String("execwarden.event", string(e.ID))),
	}
	came := trace.SpanContextFromContext(ctx)
	if home, ok := Correlated(e.Correlation, e.ID); ok && home.TraceID() != came.TraceID() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: came}))
		ctx = trace.ContextWithRemoteSpanContext(ctx, home)
	}
	return otel.Tracer("execwarden/bus").Start(ctx, "hear "+durable, opts...)
}

// Correlated is a place in the trace that a correlation names. Its span id follows from the event, since no span of that
// trace is at hand.
func Correlated(correlation string, event id.Event) (trace.SpanContext, bool) {
	traceID, err := trace.TraceIDFromHex(correlation)
	if err != nil {
		return trace.SpanContext{}, false
	}
	sum := sha256.Sum256([]byte(event))
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: trace.SpanID(sum[:8]), TraceFlags: trace.FlagsSampled, Remote: true,
	}), true
}
