package bus

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
)

// Headers of every event. The event id is also the deduplication id; with the tenant in front, since JetStream
// deduplicates over the whole stream.
const (
	HeaderMsgID = nats.MsgIdHdr
	HeaderType  = "ce-type"
)

// carrier lets OpenTelemetry read and write NATS headers, one value each: a second value is somebody else's mistake
// and is passed over.
type carrier nats.Header

func (c carrier) Get(key string) string { return nats.Header(c).Get(key) }
func (c carrier) Set(key, value string) { nats.Header(c).Set(key, value) }
func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}

// Inject writes the trace context of ctx into h.
func Inject(ctx context.Context, h nats.Header) {
	otel.GetTextMapPropagator().Inject(ctx, carrier(h))
}

// Extract reads the trace context from h.
func Extract(ctx context.Context, h nats.Header) context.Context {
	return otel.GetTextMapPropagator().Extract(ctx, carrier(h))
}

var _ propagation.TextMapCarrier = carrier{}
