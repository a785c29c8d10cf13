package fakegithub

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// refusal is GitHub's error body.
type refusal struct {
	Message          string       `json:"message"`
	Errors           []fieldError `json:"errors,omitempty"`
	DocumentationURL string       `json:"documentation_url"`
	Status           string       `json:"status"`
}

type fieldError struct {
	Resource string `json:"resource"`
	Code     string `json:"code"`
	Field    string `json:"field"`
	Message  string `json:"message,omitempty"`
}

func refuse(w http.ResponseWriter, status int, message string, errors ...fieldError) {
	writeJSON(w, status, refusal{message, errors, "https://docs.github.com/rest", strconv.Itoa(status)})
}

func notFound(w http.ResponseWriter) { refuse(w, http.StatusNotFound, "Not Found") }

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}
