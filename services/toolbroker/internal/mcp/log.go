package mcp

//lint:file-ignore SA1019 logging is to leave the protocol in 2027; the servers of today tell by it what a call does

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// logLevel is from which level on servers are asked to tell what a call does.
const (
	logLevel    = "info"
	logLevelKey = mcp.MetaKeyLogLevel
)

// askForLog asks for log lines in the protocols before 2026-07-28, in which a level is the session's. A server that does not
// take it says nothing, no more.
func askForLog(ctx context.Context, s *mcp.ClientSession, from string) {
	told := s.InitializeResult()
	if told.Capabilities != nil && told.Capabilities.Logging != nil && told.ProtocolVersion < "2026-07-28" {
		_ = s.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: mcp.LoggingLevel(from)})
	}
}
