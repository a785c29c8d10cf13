// Package mcp is the face of the gateway that external agents see: an MCP server whose tools are those of the agent's grants,
// in both eras of the protocol behind one URL. Every call goes the way of any other: requested on the bus, decided by the
// broker, and answered when its outcome is recorded. What a provider answers is passed on as it came.
package mcp
