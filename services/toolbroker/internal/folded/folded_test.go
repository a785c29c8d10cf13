package folded_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/folded"
)

func all(string) bool { return true }

func tools() []connection.Tool {
	return []connection.Tool{
		{Name: "read_thing", Description: "Read a thing\nIt is read.", Schema: json.RawMessage(`{"type":"object","required":["id"]}`), Effect: connection.Pure},
		{Name: "remove_thing", Description: "Remove a thing", Schema: json.RawMessage(`{"type":"object"}`), Effect: connection.Opaque, Writes: true},
		{Name: "createInvoice", Description: strings.Repeat("€", 400), Schema: json.RawMessage(`{"type":"object"}`), Effect: connection.Opaque, Writes: true},
	}
}

func TestAnswer(t *testing.T) {
	x := folded.NewIndex(tools())
	onlyRead := func(tool string) bool { return tool == "read_thing" }
	for name, c := range map[string]struct {
		tool, args string
		allowed    func(string) bool
		want       string // part of the answer, or a problem's code
	}{
		"search":              {connection.SearchOperations, `{"query":"read things","limit":1}`, all, `{"operations":[{"tool":"read_thing","description":"Read a thing\nIt is read.","effect":"pure","writes":false}]}`},
		"a word in camelCase": {connection.SearchOperations, `{"query":"invoices"}`, all, `"tool":"createInvoice"`},
		"nothing is found":    {connection.SearchOperations, `{"query":"zebra"}`, all, `{"operations":[]}`},
		"no words":            {connection.SearchOperations, `{"query":""}`, all, `{"operations":[]}`},
		"stacklok/toolhive#4374 a search tells of nothing forbidden": {connection.SearchOperations, `{"query":"remove a thing"}`, onlyRead, `{"operations":[{"tool":"read_thing"`},
		"describe":             {connection.DescribeOperation, `{"tool":"read_thing"}`, all, `"required":["id"]`},
		"describe forbidden":   {connection.DescribeOperation, `{"tool":"remove_thing"}`, onlyRead, "not_found"},
		"describe nothing":     {connection.DescribeOperation, `{"tool":"nosuch"}`, all, "not_found"},
		"the call itself":      {connection.CallOperation, `{"tool":"read_thing","arguments":{}}`, all, "invalid"},
		"unknown argument":     {connection.SearchOperations, `{"query":"x","all":true}`, all, "invalid"},
		"a number for a query": {connection.SearchOperations, `{"query":1}`, all, "invalid"},
		"no object":            {connection.SearchOperations, `[]`, all, "invalid"},
		"a huge query":         {connection.SearchOperations, `{"query":"` + strings.Repeat("thing ", 20000) + `","limit":-5}`, all, `"tool":"read_thing"`},
	} {
		answer, err := x.Answer(c.tool, json.RawMessage(c.args), c.allowed)
		got := string(answer)
		if err != nil {
			got = string(problem.CodeOf(err))
		}
		if !strings.Contains(got, c.want) || strings.Contains(got, "remove_thing") && strings.Contains(name, "forbidden") {
			t.Errorf("%s: %.300s", name, got)
		}
		if !json.Valid(answer) && err == nil {
			t.Errorf("%s: no JSON", name)
		}
	}
}

// The names and schemas of the three are those that everybody reads their arguments by.
func TestTools(t *testing.T) {
	for _, tool := range folded.Tools() {
		if !connection.Folded(tool.Name) || !json.Valid(tool.Schema) || tool.Description == "" {
			t.Errorf("%+v", tool)
		}
	}
	if connection.Folded("issue_read") {
		t.Error("any tool stands for others")
	}
}

func BenchmarkSearch(b *testing.B) {
	var many []connection.Tool
	for n := range 1000 {
		many = append(many, connection.Tool{Name: fmt.Sprintf("list_things_%d", n), Description: "List things of sort " + fmt.Sprint(n)})
	}
	x := folded.NewIndex(many)
	for b.Loop() {
		x.Search("list things of a sort", 10, all)
	}
}
