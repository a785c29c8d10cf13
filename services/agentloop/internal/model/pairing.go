package model

import (
	"encoding/json"

	"github.com/execwarden/execwarden/libs/problem"
)

// check refuses a request that providers answer with a permanent error, before it costs anything: above all a tool
// call without exactly one result right after it. Once in a transcript such a call would block its run for good.
func (r Request) check() error {
	if r.Model == "" {
		return final(problem.Invalid, "the request names no model")
	}
	if r.MaxOutputTokens <= 0 {
		return final(problem.Invalid, "the request sets no output limit")
	}
	for _, t := range r.Tools {
		if !ToolName.MatchString(t.Name) {
			return final(problem.Invalid, "tool name %q does not match %s", t.Name, ToolName)
		}
		if checkObject(string(t.Schema)) != nil {
			return final(problem.Invalid, "the schema of tool %s is not a JSON object", t.Name)
		}
	}
	if len(r.Messages) == 0 {
		return final(problem.Invalid, "the request has no messages")
	}
	return checkPairs(r.Messages)
}

func checkPairs(messages []Message) error {
	open := map[string]bool{} // calls that wait for their result
	for i, m := range messages {
		if len(open) > 0 && m.Role != RoleTool {
			return final(problem.Invalid, "message %d: a tool call before it has no result", i)
		}
		if err := m.check(); err != nil {
			return final(problem.Invalid, "message %d: %s", i, err.Message)
		}
		for _, c := range m.ToolCalls {
			if open[c.ID] {
				return final(problem.Invalid, "message %d: two tool calls have the id %q", i, c.ID)
			}
			open[c.ID] = true
		}
		for _, res := range m.ToolResults {
			if !open[res.CallID] {
				return final(problem.Invalid, "message %d: the result for %q answers no open tool call", i, res.CallID)
			}
			delete(open, res.CallID)
		}
	}
	if len(open) > 0 {
		return final(problem.Invalid, "the last tool call has no result")
	}
	return nil
}

// check says whether a message has what its role allows.
func (m Message) check() *problem.Error {
	calls, results := len(m.ToolCalls) > 0, len(m.ToolResults) > 0
	switch {
	case m.Role == RoleUser && (calls || results || m.Text == ""):
		return problem.New(problem.Invalid, "a user message has text and nothing else")
	case m.Role == RoleAssistant && results: // it may be empty: some answers are
		return problem.New(problem.Invalid, "an assistant message has no results")
	case m.Role == RoleTool && (calls || !results || m.Text != ""):
		return problem.New(problem.Invalid, "a tool message has results and nothing else")
	case m.Role != RoleUser && m.Role != RoleAssistant && m.Role != RoleTool:
		return problem.New(problem.Invalid, "unknown role %q", m.Role)
	}
	for _, c := range m.ToolCalls {
		if c.ID == "" || !ToolName.MatchString(c.Name) || checkObject(string(c.Args)) != nil {
			return problem.New(problem.Invalid, "a tool call needs an id, a tool's name and an object of arguments")
		}
	}
	var blocks []json.RawMessage
	if len(m.Raw) > 0 && json.Unmarshal(m.Raw, &blocks) != nil {
		return problem.New(problem.Invalid, "raw blocks are a JSON array")
	}
	return nil
}
