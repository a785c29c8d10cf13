package model

import "encoding/json"

// Role says who speaks in a message.
type Role string

const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool" // the results of the assistant's calls just before
)

// Message is one turn of a conversation. A user message has Text; an assistant message has Text, ToolCalls or both; a
// tool message has only ToolResults.
type Message struct {
	Role        Role
	Text        string
	ToolCalls   []ToolCall
	ToolResults []ToolResult

	// Raw is Answer.Raw of the answer that this message repeats. Leave it out when the answer came from another
	// provider: the blocks are signed.
	Raw json.RawMessage
}

// ToolCall is a model's wish to call a tool. Args is a JSON object.
type ToolCall struct {
	ID   string
	Name string
	Args json.RawMessage
}

// ToolResult answers the call with the same id.
type ToolResult struct {
	CallID  string
	Text    string
	IsError bool
}

// Tool is offered to the model. Schema is the JSON Schema of its arguments.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage
	More        string // said of the tool besides, and may be long
}

// Request asks for one answer.
type Request struct {
	Model           string // empty: Config.Model
	System          string
	Messages        []Message
	Tools           []Tool
	MaxOutputTokens int // needed: budgets reserve it before the call
}

// StopReason says why the model stopped.
type StopReason string

const (
	StopEnd       StopReason = "end"        // it said what it had to say
	StopToolCalls StopReason = "tool_calls" // it waits for results
	StopLength    StopReason = "length"     // MaxOutputTokens or the context window cut it
	StopRefused   StopReason = "refused"    // the provider's filter or the model refused
)

// Answer is one complete answer.
type Answer struct {
	Text       string
	ToolCalls  []ToolCall
	StopReason StopReason
	Usage      Usage

	// Raw holds blocks that only the provider can read and wants back unchanged (Anthropic's signed thinking), as a
	// JSON array. Empty when there are none.
	Raw json.RawMessage
}

// Message is the answer as the next request repeats it.
func (a Answer) Message() Message {
	return Message{Role: RoleAssistant, Text: a.Text, ToolCalls: a.ToolCalls, Raw: a.Raw}
}

// Usage is what the provider says it will bill. Reported is false when it said nothing usable, so that a caller keeps
// its reservation instead of booking zero.
type Usage struct {
	InputTokens  int64
	OutputTokens int64
	Reported     bool
}
