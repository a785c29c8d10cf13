package scriptmodel

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// New serves a script: POST /v1/chat/completions, POST /v1/messages and GET /v1/models.
func New(s Script) http.Handler {
	h := &handler{script: s, faults: faults{seen: map[[32]byte]int{}}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", h.serve(chatCompletions{}))
	mux.HandleFunc("POST /v1/messages", h.serve(messages{}))
	mux.HandleFunc("GET /v1/models", h.models)
	return mux
}

type handler struct {
	script Script
	faults faults
}

// protocol is one way to ask and to answer.
type protocol interface {
	// read understands a request. Its error is the client's mistake.
	read(body []byte) (request, error)
	// refuse writes an error in the protocol's shape.
	refuse(w http.ResponseWriter, status int, message string)
	// write sends the answer.
	write(w http.ResponseWriter, r request, a answer)
}

// request is what a protocol found in a body.
type request struct {
	model  string
	stream bool
	usage  bool // the client asked for the usage of a stream
	talk   *conversation
	tokens int
}

const bodyBytes = 32 << 20

func (h *handler) serve(p protocol) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Scripted-Model", h.script.Model)
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytes))
		if err != nil {
			p.refuse(w, http.StatusRequestEntityTooLarge, "the request cannot be read or is too large")
			return
		}
		req, err := p.read(body)
		if err != nil {
			p.refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		req.tokens = tokens(len(body))
		if req.model != h.script.Model {
			p.refuse(w, http.StatusNotFound, fmt.Sprintf("model %q not found; this server plays %s", req.model, h.script.Model))
			return
		}
		h.answer(p, w, req)
	}
}

func (h *handler) answer(p protocol, w http.ResponseWriter, req request) {
	a, err := h.script.play(req.talk)
	if err != nil {
		p.refuse(w, http.StatusBadRequest, "script: "+err.Error())
		return
	}
	fault := h.faults.next(h.script.Turns[a.turn-1], req.talk)
	if fault != nil && fault.Status != 0 {
		if fault.RetryAfter != "" {
			w.Header().Set("Retry-After", fault.RetryAfter)
		}
		p.refuse(w, fault.Status, "scripted fault")
		return
	}
	a.cut = fault
	p.write(w, req, a)
}

func (h *handler) models(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		OwnedBy string `json:"owned_by"`
	}
	w.Header().Set("Scripted-Model", h.script.Model)
	writeJSON(w, http.StatusOK, struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", []model{{h.script.Model, "model", "scripted"}}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}
