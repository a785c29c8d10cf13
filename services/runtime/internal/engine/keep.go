package engine

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dop251/goja"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

const codeArtifact = "artifact_too_large"

// maxSearch is the longest query or name of a search, in bytes.
const maxSearch = 1 << 10

// hostSearch(query, limit, tool, resolve, reject)
func (m *machine) hostSearch(c goja.FunctionCall) goja.Value {
	q := wire.Search{Query: strings.ToValidUTF8(c.Argument(0).String(), "\uFFFD"), Limit: int(c.Argument(1).ToInteger()), Tool: strings.ToValidUTF8(c.Argument(2).String(), "\uFFFD")}
	w := waiterOf(c.Argument(3), c.Argument(4))
	seq, ok := m.number(&m.searches, m.run.Limits.Searches)
	switch {
	case !ok:
		return m.refuse(w, codeTooMany, fmt.Sprintf("a script may search and describe tools %d times", m.run.Limits.Searches))
	case len(q.Query) > maxSearch || len(q.Tool) > maxSearch:
		return m.refuse(w, codeArgs, fmt.Sprintf("a query has at most %d bytes", maxSearch))
	}
	q.Seq = seq
	return m.ask(w, seq, wire.KindSearch, q)
}

// hostArtifact(op, name, type, body, resolve, reject)
func (m *machine) hostArtifact(c goja.FunctionCall) goja.Value {
	a := wire.Artifact{Op: c.Argument(0).String(), Name: strings.ToValidUTF8(c.Argument(1).String(), "\uFFFD"), Type: c.Argument(2).String(), Body: bytesOf(c.Argument(3))}
	w := waiterOf(c.Argument(4), c.Argument(5))
	seq, ok := m.number(&m.keeps, m.run.Limits.Keeps)
	switch {
	case !ok:
		return m.refuse(w, codeTooMany, fmt.Sprintf("a script may use artifacts %d times", m.run.Limits.Keeps))
	case len(a.Body) > m.run.Limits.Artifact:
		return m.refuse(w, codeArtifact, fmt.Sprintf("the artifact is %d bytes; the limit is %d", len(a.Body), m.run.Limits.Artifact))
	case a.Type == "json" && !json.Valid(a.Body):
		return m.refuse(w, codeArgs, "the value is nested too deeply")
	}
	if len(a.Name) > maxName {
		a.Name = a.Name[:maxName] + "…" // which is no name, and is refused as such
	}
	m.keeping++
	w.keeps, a.Seq = true, seq
	return m.ask(w, seq, wire.KindArtifact, a)
}
