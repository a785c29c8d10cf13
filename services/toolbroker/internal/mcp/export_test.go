package mcp

import "time"

// Hurry shortens the waits of listening, for tests of this package.
func Hurry() {
	connectWithin, restAfterNews, retryFirst = time.Second, 50*time.Millisecond, 20*time.Millisecond
}
