package mcp

import "time"

// Hurry shortens the waits of listening, for tests of this package.
func Hurry() {
	connectWithin, restAfterNews, retryFirst = time.Second, 50*time.Millisecond, 20*time.Millisecond
}

// AnHourLater has another client come long after, which is when doors that nobody uses are closed.
func (p *Provider) AnHourLater() {
	key := doorKey{conversation: "mcp_later"}
	now := time.Now().Add(time.Hour)
	if one, ok := p.doors.take(key, now); ok {
		p.doors.leave(one, now)
		p.doors.forget(key, one)
	}
}
