package edge

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/execwarden/execwarden/libs/problem"
)

// Handler wraps the routes of the faces. Each request has a span and is counted, by route: paths hold ids.
func Handler(site *Site, routes *http.ServeMux, metrics prometheus.Registerer) (http.Handler, error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "execwarden_http_request_seconds", Help: "Time to answer a request, by route and status; of a stream, its whole life.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
	}, []string{"route", "status"})
	if err := metrics.Register(seconds); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx := otel.GetTextMapPropagator().Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := otel.Tracer("execwarden/http").Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		r = r.WithContext(ctx)
		out := &recorder{ResponseWriter: w, status: http.StatusOK}
		h := out.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		if err := site.CheckHost(r); err != nil {
			problem.WriteHTTP(out, err)
		} else {
			routes.ServeHTTP(out, r)
		}
		route := r.Pattern // the routes have set it
		if route == "" {
			route = "none"
		}
		span.SetName(route)
		span.SetAttributes(attribute.String("http.request.method", r.Method), attribute.String("http.route", route),
			attribute.Int("http.response.status_code", out.status))
		if out.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, strconv.Itoa(out.status))
		}
		seconds.WithLabelValues(route, strconv.Itoa(out.status)).Observe(time.Since(began).Seconds())
	}), nil
}

// recorder remembers the status.
type recorder struct {
	http.ResponseWriter
	status int
	wrote  bool
}

func (r *recorder) WriteHeader(status int) {
	if !r.wrote {
		r.status, r.wrote = status, true
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	r.wrote = true
	return r.ResponseWriter.Write(b)
}

// Hijack implements http.Hijacker, for WebSockets: they look for no other way to it.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.status, r.wrote = http.StatusSwitchingProtocols, true
	return http.NewResponseController(r.ResponseWriter).Hijack()
}

// Unwrap lets http.ResponseController reach flushing and deadlines.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
