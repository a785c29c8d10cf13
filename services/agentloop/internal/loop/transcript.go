package loop

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/services/agentloop/internal/model"
)

// maxResult is how much of one tool result the model is shown, in bytes.
const maxResult = 64 << 10

// Render makes the model request of the run's next answer. Each call of an answer is followed by exactly one result,
// whatever became of it.
func Render(s *State, tools []ask.VisibleTool) model.Request {
	r := model.Request{
		Model: s.Created.Agent.Model.Name, System: s.Created.Agent.Body.Instructions, MaxOutputTokens: s.MaxOutput(),
		Messages: []model.Message{{Role: model.RoleUser, Text: s.Created.Body.Text}},
	}
	for _, t := range tools {
		if !model.ToolName.MatchString(wireName(t.Name)) {
			continue // one name that the protocols do not allow would make them refuse every request
		}
		r.Tools = append(r.Tools, model.Tool{Name: wireName(t.Name), Description: t.Description, Schema: t.Schema, More: t.Types})
	}
	for _, step := range s.Steps {
		if step.Completed == nil {
			break
		}
		answer := step.Completed.Body
		said := model.Message{Role: model.RoleAssistant, Text: answer.Text, Raw: answer.Raw}
		results := model.Message{Role: model.RoleTool}
		for _, use := range answer.Calls {
			said.ToolCalls = append(said.ToolCalls, asSaid(use))
			text, isError := "the call has no result", true
			if state := s.Calls[use.Call]; state != nil && state.Outcome != nil {
				text, isError = result(state.Outcome)
				if state.Admitted != nil && state.Admitted.Edited != 0 {
					text = edited(state.Admitted) + text
				}
			}
			results.ToolResults = append(results.ToolResults, model.ToolResult{CallID: use.ID, Text: text, IsError: isError})
		}
		r.Messages = append(r.Messages, said)
		if len(answer.Calls) > 0 {
			r.Messages = append(r.Messages, results)
		}
	}
	return r
}

// result is what the model is told of a call's outcome.
func result(outcome schemas.Event) (text string, isError bool) {
	switch o := outcome.(type) {
	case call.Finished:
		return clip(string(o.Body.Result)), o.ToolError
	case call.Refused:
		return explain(o.Code, o.Reason), true
	case call.Failed:
		return explain(o.Code, o.Message), true
	case call.Cancelled:
		return explain("cancelled", o.Reason), true
	case call.Unknown:
		return explain("unknown_outcome", o.Message+"; do not repeat the call without asking a person"), true
	}
	return explain("internal", "the call ended in a way that this version does not know"), true
}

// maxEdited is how much of edited arguments the model is shown, in bytes.
const maxEdited = 16 << 10

// edited tells the model that what was done is not what it asked for. Its own words stay as they were: a provider that
// is given another history than it wrote may refuse it.
func edited(a *call.Admitted) string {
	return "[A person edited the arguments of this call. It was made with: " + clipTo(string(a.Body.Args), maxEdited) + "]\n"
}

func explain(code, message string) string {
	raw, err := json.Marshal(struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}{struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{code, message}})
	if err != nil {
		return message
	}
	return string(raw)
}

// clip shortens a result.
func clip(text string) string { return clipTo(text, maxResult) }

// clipTo shortens text at a character's border and says so.
func clipTo(text string, most int) string {
	if len(text) <= most {
		return text
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + fmt.Sprintf("\n[shortened: %d of %d bytes are shown]", cut, len(text))
}

// Use is what the model means by a tool call. One that names another operation is the use of that one.
func Use(t model.ToolCall) run.ToolUse {
	use := run.ToolUse{ID: t.ID, Tool: ToolOf(t.Name), Args: t.Args}
	name, short, _ := strings.Cut(use.Tool, ".")
	if short != connection.CallOperation {
		return use
	}
	if c, ok := connection.ParseOperationCall(t.Args); ok { // else the broker refuses it, and the model is told why
		use.Via, use.Tool, use.Args = use.Tool, name+"."+c.Tool, c.Arguments
	}
	return use
}

// asSaid is a tool call as the model made it.
func asSaid(use run.ToolUse) model.ToolCall {
	t := model.ToolCall{ID: use.ID, Name: wireName(use.Tool), Args: use.Args}
	if use.Via == "" {
		return t
	}
	_, short, _ := strings.Cut(use.Tool, ".")
	if raw, err := json.Marshal(connection.OperationCall{Tool: short, Arguments: use.Args}); err == nil {
		t.Name, t.Args = wireName(use.Via), raw
	}
	return t
}

// wireName turns connection.tool into a name that models' protocols allow; ToolOf turns it back. A connection's name
// has no underscore, so the first two of them are the dot.
func wireName(tool string) string { return strings.Replace(tool, ".", "__", 1) }

// ToolOf is the tool that the model means by a name.
func ToolOf(wire string) string { return strings.Replace(wire, "__", ".", 1) }
