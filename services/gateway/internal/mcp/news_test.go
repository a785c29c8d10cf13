package mcp

import "testing"

// What waits for a client that does not read is bounded, in words and in bytes; what it hears makes room.
func TestWordsAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ size, most int }{"small": {10, maxWaiting}, "large": {256 << 10, maxWaitingBytes / (256 << 10)}, "larger than all": {maxWaitingBytes + 1, 0}} {
		w := &words{waiting: make(chan *said, maxWaiting)}
		taken := 0
		for range 2 * maxWaiting {
			if w.offer(&said{}, c.size) {
				taken++
			}
		}
		if taken != c.most || len(w.waiting) != c.most || w.bytes.Load() != int64(c.most*c.size) {
			t.Errorf("%s: %d words of %d bytes wait, want %d", name, taken, w.bytes.Load(), c.most)
		}
		for range c.most {
			(<-w.waiting).heard()
		}
		if w.bytes.Load() != 0 || c.most > 0 && !w.offer(&said{}, c.size) {
			t.Errorf("%s: there is no room again: %d bytes", name, w.bytes.Load())
		}
	}
}

// Whoever follows a call last hears it, also when who followed it before leaves later.
func TestWhoFollowsLastHears(t *testing.T) {
	n := newNews()
	_, first := n.of("call_1")
	second, leave := n.of("call_1")
	first()
	if to := n.waiting["call_1"]; to == nil || !to.offer(&said{}, 1) || len(second) != 1 {
		t.Error("the second hears nothing once the first is gone")
	}
	if leave(); len(n.waiting) != 0 {
		t.Error("it is kept")
	}
}
