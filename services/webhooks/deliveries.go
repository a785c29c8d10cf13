package webhooks

import (
	"context"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/hook"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/webhooks/internal/github"
)

func (s *Service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hooks/{tenant}/{hook}", s.take)
	return mux
}

// take answers one delivery. 202 says that it is durable; anything else, that it left nothing behind.
func (s *Service) take(w http.ResponseWriter, r *http.Request) {
	ctx, span := otel.Tracer("execwarden/webhooks").Start(r.Context(), "deliver webhook", trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	d, err := s.receive(ctx, w, r)
	answer := http.StatusAccepted
	if err != nil {
		answer = problem.CodeOf(err).Status()
		if problem.CodeOf(err) == problem.Pending || problem.CodeOf(err) == problem.Busy {
			answer = http.StatusServiceUnavailable // GitHub shows the delivery as failed, and it can be sent again
		}
		span.SetStatus(codes.Error, string(problem.CodeOf(err)))
		s.log.WarnContext(ctx, "delivery refused", "answer", answer, "err", err)
	}
	span.SetAttributes(attribute.Int("http.response.status_code", answer), attribute.String("execwarden.delivery", string(d)))
	s.count.WithLabelValues(strconv.Itoa(answer)).Inc()
	if err != nil {
		problem.WriteHTTPStatus(w, err, answer)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (s *Service) receive(ctx context.Context, w http.ResponseWriter, r *http.Request) (id.Delivery, error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return "", problem.New(problem.Busy, "%d deliveries are being read already", s.cfg.Concurrent)
	}
	tenant, errTenant := id.Parse[id.Tenant](r.PathValue("tenant"))
	hookID, errHook := id.Parse[id.Hook](r.PathValue("hook"))
	if errTenant != nil || errHook != nil {
		return "", problem.New(problem.NotFound, "there is no such endpoint")
	}
	secret, err := s.vault.Get(ctx, tenant, string(hookID))
	if err != nil {
		if problem.CodeOf(err) == problem.NotFound {
			return "", problem.New(problem.NotFound, "there is no such endpoint")
		}
		return "", err
	}
	got, err := github.Read(w, r, secret)
	if err != nil {
		return "", err
	}
	delivery := id.Derive[id.Delivery](string(tenant), string(hookID), got.GUID)
	_, err = s.deps.Log.AppendAfter(ctx, eventlog.Draft{
		Tenant: tenant, Key: string(delivery), Actor: "hook:" + string(hookID), ID: id.Derive[id.Event](string(delivery), "received"),
		Event: hook.Received{Delivery: delivery, Hook: hookID, GUID: got.GUID, Event: got.Event, Body: hook.Payload{Payload: got.Body}},
	}, 0)
	if problem.CodeOf(err) == problem.Conflict {
		return delivery, nil // it came before: the answer is the same
	}
	return delivery, err
}
