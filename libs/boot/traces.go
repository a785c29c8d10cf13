package boot

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// StartTraces makes traces flow through the process and, when OTEL_EXPORTER_OTLP_ENDPOINT is set, out of it. Ids and
// propagation work without an exporter too: they join logs and events. The answer ends and flushes it.
func StartTraces(ctx context.Context, service, version string) (stop func(context.Context) error, err error) {
	opts := []trace.TracerProviderOption{trace.WithResource(resource.NewSchemaless(
		attribute.String("service.name", service), attribute.String("service.version", version)))}
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" {
		exporter, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("trace exporter: %w", err)
		}
		opts = append(opts, trace.WithBatcher(exporter))
	}
	provider := trace.NewTracerProvider(opts...)
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return provider.Shutdown, nil
}
