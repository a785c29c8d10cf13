package api

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/control"
	"github.com/execwarden/execwarden/services/gateway/internal/edge"
	"github.com/execwarden/execwarden/services/gateway/internal/follow"
	"github.com/execwarden/execwarden/services/gateway/internal/oauth"
	"github.com/execwarden/execwarden/services/gateway/internal/peers"
)

// The largest request bodies, in bytes: of JSON, and of an archive with an API's description, of which the text may be
// ten times as large.
const (
	maxBody    = 1 << 20
	maxArchive = 16 << 20
)

// API answers requests under /v1/.
type API struct {
	Gate   *auth.Gate
	Site   *edge.Site
	State  *control.State
	People *auth.People
	Peers  *peers.Peers
	Hub    *follow.Hub
	OAuth  *oauth.Server
	Log    *eventlog.Log
	Note   *slog.Logger

	visits atomic.Int64 // streams that are open
}

// handler answers one authenticated request. body is all that was sent.
type handler func(w http.ResponseWriter, r *http.Request, who auth.Identity, body []byte) error

// route is an endpoint: where it is, who may use it, and what it does.
type route struct {
	pattern string
	may     func(member.Role) bool
	serve   handler
	limit   int64 // of the body; zero is maxBody
}

func (a *API) routes() []route {
	return []route{
		{"GET /v1/whoami", anyRole, answer(a.whoami), 0},
		{"POST /v1/logins", anyRole, answer(a.newLogin), 0},

		{"GET /v1/members", anyRole, answer(a.members), 0},
		{"POST /v1/members", member.Role.MayConfigure, answer(a.addMember), 0},
		{"PUT /v1/members/{name}/role", member.Role.MayConfigure, answer(a.setRole), 0},
		{"POST /v1/members/{name}/remove", member.Role.MayConfigure, answer(a.removeMember), 0},
		{"POST /v1/members/{name}/erase", member.Role.MayConfigure, answer(a.eraseMember), 0},
		{"GET /v1/tokens", anyRole, answer(a.tokens), 0},
		{"POST /v1/tokens", anyRole, answer(a.createToken), 0},
		{"POST /v1/tokens/{id}/revoke", anyRole, answer(a.revokeToken), 0},

		{"GET /v1/agents", anyRole, answer(a.agents), 0},
		{"PUT /v1/agents/{name}", member.Role.MayConfigure, answer(a.defineAgent), 0},
		{"DELETE /v1/agents/{name}", member.Role.MayConfigure, answer(a.removeAgent), 0},
		{"GET /v1/clients", anyRole, answer(a.clients), 0},
		{"PUT /v1/clients/{name}", member.Role.MayConfigure, answer(a.registerClient), 0},
		{"DELETE /v1/clients/{name}", member.Role.MayConfigure, answer(a.removeClient), 0},
		{"GET /v1/connections", anyRole, answer(a.connections), 0},
		{"PUT /v1/connections/{name}", member.Role.MayConfigure, answer(a.defineConnection), 0},
		{"DELETE /v1/connections/{name}", member.Role.MayConfigure, answer(a.removeConnection), 0},
		{"GET /v1/connections/{name}/diff", anyRole, answer(a.diffConnection), 0},
		{"POST /v1/connections/{name}/login", member.Role.MayConfigure, answer(a.beginLogin), 0},
		{"PUT /v1/connections/{name}/package", member.Role.MayConfigure, answer(a.importPackage), maxArchive},
		{"GET /v1/grants", anyRole, answer(a.grants), 0},
		{"PUT /v1/grants/{name}", member.Role.MayConfigure, answer(a.createGrant), 0},
		{"POST /v1/grants/{name}/simulate", anyRole, answer(a.simulateGrant), 0},
		{"GET /v1/agents/{name}/access", anyRole, answer(a.agentAccess), 0},
		{"POST /v1/agents/{name}/access", anyRole, answer(a.agentAccess), 0},
		{"GET /v1/agents/{name}/types", anyRole, answer(a.agentTypes), 0},
		{"POST /v1/agents/{name}/scripts", member.Role.MayConfigure, answer(a.runScript), 0},
		{"POST /v1/grants/{name}/revoke", member.Role.MayConfigure, answer(a.revokeGrant), 0},
		{"GET /v1/targets", anyRole, answer(a.targets), 0},
		{"PUT /v1/targets/{name}", member.Role.MayConfigure, answer(a.defineTarget), 0},
		{"DELETE /v1/targets/{name}", member.Role.MayConfigure, answer(a.removeTarget), 0},
		{"POST /v1/targets/{name}/test", member.Role.MayConfigure, answer(a.testTarget), 0},
		{"GET /v1/triggers", anyRole, answer(a.triggers), 0},
		{"PUT /v1/triggers/{name}", member.Role.MayConfigure, answer(a.defineTrigger), 0},
		{"PUT /v1/hooks/{name}", member.Role.MayConfigure, answer(a.defineHook), 0},
		{"GET /v1/environments", anyRole, answer(a.environments), 0},
		{"PUT /v1/environments/{name}", member.Role.MayConfigure, answer(a.defineEnvironment), 0},
		{"DELETE /v1/environments/{name}", member.Role.MayConfigure, answer(a.removeEnvironment), 0},
		{"POST /v1/environments/{name}/drain", member.Role.MayConfigure, answer(a.drainEnvironment), 0},
		{"POST /v1/environments/{name}/token", member.Role.MayConfigure, answer(a.createEnrolment), 0},
		{"POST /v1/environments/{name}/attach", member.Role.MayConfigure, answer(a.attach), 0},
		{"GET /v1/calls/{id}/output", anyRole, answer(a.output), 0},
		{"POST /v1/environments/{name}/visits", member.Role.MayConfigure, answer(a.admitVisit), 0},
		{"GET /v1/environments/{name}/visits", member.Role.MayConfigure, a.visitStream, 0},
		{"POST /v1/environments/{name}/release", member.Role.MayConfigure, answer(a.release), 0},
		{"POST /v1/environments/{name}/checkpoint", member.Role.MayConfigure, answer(a.checkpointVolume), 0},
		{"POST /v1/environments/{name}/restore", member.Role.MayConfigure, answer(a.restoreVolume), 0},
		{"POST /v1/environments/{name}/clone", member.Role.MayConfigure, answer(a.cloneVolume), 0},

		{"GET /v1/keys", owner, answer(a.masterKeys), 0},
		{"POST /v1/keys/rewrap", owner, answer(a.rewrapKeys), 0},
		{"POST /v1/keys/renew", owner, answer(a.renewKeys), 0},

		{"GET /v1/runs", anyRole, answer(a.runs), 0},
		{"POST /v1/runs", member.Role.MayConfigure, answer(a.startRun), 0},
		{"GET /v1/runs/{id}/timeline", anyRole, answer(a.timeline), 0},
		{"POST /v1/runs/{id}/cancel", member.Role.MayApprove, answer(a.cancelRun), 0},
		{"GET /v1/sessions/{id}/artifacts", anyRole, answer(a.artifacts), 0},
		{"GET /v1/sessions/{id}/artifacts/{name}", anyRole, a.artifact, 0},
		{"GET /v1/approvals", anyRole, answer(a.approvals), 0},
		{"GET /v1/approvals/{id}", anyRole, answer(a.approval), 0},
		{"POST /v1/approvals/{id}/edit", member.Role.MayApprove, answer(a.editApproval), 0},
		{"POST /v1/approvals/{id}/decide", member.Role.MayApprove, answer(a.decide), 0},

		{"GET /v1/events", anyRole, answer(a.events), 0},
		{"GET /v1/events/tail", anyRole, a.tail, 0},
		{"POST /v1/ledger/verify", anyRole, answer(a.verify), 0},
		{"GET /v1/ledger/position", anyRole, answer(a.position), 0},
	}
}

func anyRole(member.Role) bool { return true }

//go:embed openapi.yaml
var openAPI []byte

// describe needs no token: it says how to use the others.
const describe = "GET /v1/openapi.yaml"

// The machines' own endpoints, which need no token either: the one enrols, the other is the gateway's, which passes their
// connections on.
const (
	enrolRoute   = "POST /v1/connectors"
	ConnectRoute = "GET /v1/connect"
)

// Register adds the routes.
func (a *API) Register(mux *http.ServeMux) {
	for _, rt := range a.routes() {
		mux.HandleFunc(rt.pattern, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, rt) })
	}
	mux.HandleFunc(describe, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(openAPI) // the client is gone if this fails
	})
	mux.HandleFunc(enrolRoute, a.enrol)
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		problem.WriteHTTP(w, problem.New(problem.NotFound, "there is no %.10s %.200s; %s lists what there is", r.Method, r.URL.Path, describe))
	})
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, rt route) {
	who, err := a.Gate.Identify(r)
	if err == nil && who.Session() && edge.Changes(r) {
		err = a.Site.CheckOrigin(r)
	}
	if err == nil && !rt.may(who.Role) {
		err = problem.New(problem.Denied, "a member with role %s may not do this", who.Role)
	}
	var body []byte
	if err == nil {
		body, err = edge.Body(w, r, cmp.Or(rt.limit, maxBody))
	}
	if err == nil {
		err = rt.serve(w, r, who, body)
	}
	if err == nil {
		return
	}
	code := problem.CodeOf(err)
	if code == problem.Internal || code == problem.BusDenied {
		a.Note.ErrorContext(r.Context(), "request", "route", rt.pattern, "err", err)
	}
	if code == problem.Unauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	problem.WriteHTTP(w, err)
}

// answer makes a handler of a function that gives what to write as JSON.
func answer[A any](f func(r *http.Request, who auth.Identity, body []byte) (A, error)) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Identity, body []byte) error {
		out, err := f(r, who, body)
		if err != nil {
			return err
		}
		raw, err := json.Marshal(out)
		if err != nil {
			return problem.Wrap(err, problem.Internal, "the answer cannot be written")
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(raw, '\n')) // the client is gone if this fails
		return nil
	}
}
