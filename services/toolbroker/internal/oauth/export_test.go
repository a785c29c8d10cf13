package oauth

import "time"

// Lapse sets the client's clock forward.
func (c *Client) Lapse(by time.Duration) { c.now = func() time.Time { return time.Now().Add(by) } }
