package problem

import (
	"encoding/json"
	"net/http"
)

// edges is the one table from codes to the edges' own vocabularies.
var edges = map[Code]struct{ status, exit int }{
	Invalid:          {http.StatusBadRequest, 2},
	TooLarge:         {http.StatusRequestEntityTooLarge, 2},
	Unauthenticated:  {http.StatusUnauthorized, 3},
	Denied:           {http.StatusForbidden, 3},
	NotFound:         {http.StatusNotFound, 4},
	Conflict:         {http.StatusConflict, 1},
	Held:             {http.StatusAccepted, 5},
	Expired:          {http.StatusGone, 1},
	Cancelled:        {http.StatusConflict, 1},
	Unknown:          {http.StatusConflict, 1},
	Timeout:          {http.StatusGatewayTimeout, 6},
	Busy:             {http.StatusTooManyRequests, 1},
	Unavailable:      {http.StatusServiceUnavailable, 1},
	AuditUnavailable: {http.StatusServiceUnavailable, 1},
	Pending:          {http.StatusAccepted, 6},
	BudgetExhausted:  {http.StatusPaymentRequired, 1},
	Upstream:         {http.StatusBadGateway, 1},
	BusDenied:        {http.StatusInternalServerError, 1},
	Internal:         {http.StatusInternalServerError, 1},
}

// Codes lists every code, for documents and tests.
func Codes() []Code {
	all := make([]Code, 0, len(edges))
	for c := range edges {
		all = append(all, c)
	}
	return all
}

// Known says that a code is one of this program's own: what comes from outside may be anything.
func (c Code) Known() bool {
	_, ok := edges[c]
	return ok
}

// Status is the HTTP status of a code. An unknown code is a 500.
func (c Code) Status() int {
	if e, ok := edges[c]; ok {
		return e.status
	}
	return http.StatusInternalServerError
}

// JSONRPC is the code of an error of our own in JSON-RPC, in the range that MCP leaves to servers: what is wrong with the
// request is the standard's own code.
func (c Code) JSONRPC() int64 {
	switch c {
	case Invalid, TooLarge, NotFound:
		return -32602
	case Internal, BusDenied:
		return -32603
	case Denied, Unauthenticated, Expired:
		return -32050
	case Held, Pending:
		return -32051
	case Unknown:
		return -32052
	case Cancelled:
		return -32053
	case Busy, BudgetExhausted:
		return -32054
	}
	return -32055 // it did not work, and may later
}

// ExitCode is the CLI's exit code of err: 0 ok, 1 failed, 2 usage, 3 denied, 4 not found, 5 awaiting approval,
// 6 timeout.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := edges[CodeOf(err)]; ok {
		return e.exit
	}
	return 1
}

// WriteHTTP answers a request with err as an RFC 9457 problem document.
func WriteHTTP(w http.ResponseWriter, err error) { WriteHTTPStatus(w, err, CodeOf(err).Status()) }

// WriteHTTPStatus is WriteHTTP for a protocol that wants another status.
func WriteHTTPStatus(w http.ResponseWriter, err error, status int) {
	d := DetailOf(err)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct { // the client is gone if this fails
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Code   Code   `json:"code"`
		Detail string `json:"detail"`
	}{"https://execwarden.dev/problems/" + string(d.Code), http.StatusText(status), status, d.Code, d.Message})
}

// ReadHTTP reads what WriteHTTP wrote. It is nil for what is no such document. The code is the writer's word: a caller who
// acts on codes asks whether it is Known.
func ReadHTTP(raw []byte) *Detail {
	var doc struct {
		Code   Code   `json:"code"`
		Detail string `json:"detail"`
	}
	if json.Unmarshal(raw, &doc) != nil || doc.Code == "" {
		return nil
	}
	return &Detail{Code: doc.Code, Message: doc.Detail}
}
