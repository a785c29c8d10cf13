package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// read takes a JSON body. Fields that nobody knows are refused: a limit or condition that is misspelt would otherwise
// be none.
func read[T any](r *http.Request, body []byte) (T, error) {
	var v T
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return v, problem.New(problem.Invalid, "send JSON, with Content-Type: application/json")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		return v, problem.Wrap(err, problem.Invalid, "the body is not what this takes: %s", explain(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return v, problem.New(problem.Invalid, "there is more after the JSON object")
	}
	return v, nil
}

// readOptional is read, where no body at all is an empty one.
func readOptional[T any](r *http.Request, body []byte) (T, error) {
	if len(body) == 0 {
		var none T
		return none, nil
	}
	return read[T](r, body)
}

// explain says what is wrong with JSON without repeating what was sent: it may hold a secret.
func explain(err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return "it is no valid JSON at byte " + strconv.FormatInt(syntax.Offset, 10)
	case errors.As(err, &kind):
		return "field " + kind.Field + " is not a " + kind.Type.String()
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "it is empty, or it ends too early"
	case strings.HasPrefix(err.Error(), "json: unknown field"):
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	return "a value is not of its field's form"
}

// named reads the last part of a path such as /v1/agents/{name}: a name, or the id that it makes.
func named[T id.ID](r *http.Request) (T, error) { return refer[T](r.PathValue("name")) }

// refer reads a reference to a thing that a person named: its name, or its id.
func refer[T id.ID](text string) (T, error) {
	if t, err := id.Parse[T](text); err == nil {
		return t, nil
	}
	t, err := id.Named[T](text)
	if err != nil {
		return "", problem.Wrap(err, problem.Invalid, "%v", err)
	}
	return t, nil
}

// minted reads the id of a thing that we named, from a path such as /v1/runs/{id}.
func minted[T id.ID](r *http.Request) (T, error) { return parsed[T](r.PathValue("id")) }

func parsed[T id.ID](text string) (T, error) {
	t, err := id.Parse[T](text)
	if err != nil {
		return "", problem.Wrap(err, problem.Invalid, "%v", err)
	}
	return t, nil
}

// same checks that a body that repeats its thing's id means the one in the path, and gives that.
func same[T id.ID](inPath, inBody T) (T, error) {
	if inBody != "" && inBody != inPath && string(inBody) != id.Name(inPath) {
		return "", problem.New(problem.Invalid, "the body is about %.80q, and the path about %s", inBody, inPath)
	}
	return inPath, nil
}

// query reads a request's query, of which every parameter has to be among known.
func query(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the query cannot be read")
	}
	for name, values := range q {
		ok := len(values) == 1
		if ok {
			ok = false
			for _, k := range known {
				ok = ok || k == name
			}
		}
		if !ok {
			return nil, problem.New(problem.Invalid, "query parameter %.60q is not known here, or is given twice; known: %s", name, strings.Join(known, ", "))
		}
	}
	return q, nil
}

// limit reads a page's size; empty is the ledger's default.
func limit(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPage {
		return 0, problem.New(problem.Invalid, "limit %.20q is not a number from 1 to %d", text, maxPage)
	}
	return n, nil
}

// maxPage is the ledger's largest page.
const maxPage = 200
