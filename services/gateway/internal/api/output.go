package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// Waiting for output.
const (
	maxOutputWait = 20 * time.Second
	lookForOutput = 250 * time.Millisecond
)

func (a *API) output(r *http.Request, who auth.Identity, _ []byte) (ask.Output, error) {
	c, err := minted[id.Call](r)
	if v, visitErr := minted[id.Visit](r); visitErr == nil {
		c, err = id.Call(v), nil // what a person's shell printed is kept as a call's output is
	}
	if err != nil {
		return ask.Output{}, err
	}
	query := r.URL.Query()
	q := ask.ReadOutput{Call: c}
	if text := query.Get("after"); text != "" {
		if q.After, err = strconv.ParseUint(text, 10, 63); err != nil {
			return ask.Output{}, problem.New(problem.Invalid, "after %.40q is no page's next", text)
		}
	}
	wait := time.Duration(0)
	if text := query.Get("wait_s"); text != "" {
		seconds, err := strconv.Atoi(text)
		if wait = time.Duration(seconds) * time.Second; err != nil || wait < 0 || wait > maxOutputWait {
			return ask.Output{}, problem.New(problem.Invalid, "wait_s %.40q is outside 0 to %d", text, int(maxOutputWait.Seconds()))
		}
	}
	until := time.Now().Add(wait)
	for {
		out, err := a.Peers.Output(r.Context(), who, q)
		if err != nil || out.Next != q.After || !time.Now().Before(until) {
			return out, err
		}
		select {
		case <-time.After(lookForOutput):
		case <-r.Context().Done():
			return out, nil
		}
	}
}
