package connection

import "slices"

// The methods of an MCP server that are called as its tools are: each is decided by grants and recorded. Their names hold a
// '/', which no tool's does.
const (
	ReadResource = "resources/read"
	GetPrompt    = "prompts/get"
	Complete     = "completion/complete"
	Sample       = "sampling/createMessage" // asked by the server, of a client: only where a grant names it in full
)

// Methods lists what clients may call of an MCP server besides its tools.
func Methods() []string { return []string{ReadResource, GetPrompt, Complete} }

// Method says whether a call is of a method, not of a tool.
func Method(tool string) bool {
	return tool == Sample || slices.Contains(Methods(), tool)
}
