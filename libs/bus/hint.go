package bus

import (
	"encoding/json"
	"strings"

	"github.com/execwarden/execwarden/schemas/id"
)

// Hint tells an instance that a call's outcome is stored. It is not the outcome: whoever gets one reads the event at
// the sequence and checks that it is the call's.
type Hint struct {
	Call id.Call `json:"call"`
	Seq  uint64  `json:"sequence"`
	Said int     `json:"said,omitempty"` // how many news the call had: they come another way, and may come after
}

// SendHint tells whoever waits at subject. A hint that gets lost costs the waiter a poll, no more, so nothing is
// reported; a subject that is not for hints is passed over.
func (c *Conn) SendHint(subject string, h Hint) {
	if !strings.HasPrefix(subject, "ew.hint.v1.") {
		return
	}
	body, err := json.Marshal(h)
	if err == nil {
		_ = c.NC.Publish(subject, body)
	}
}
