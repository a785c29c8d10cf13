package call

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/execwarden/execwarden/schemas/id"
)

// News is what a call says while it runs. It is no event: it flows to whoever follows the run at that moment, and is
// stored nowhere.
type News struct {
	N        int     `json:"n"` // counts what was said, from 1; a gap is what was too much to pass on
	Call     id.Call `json:"call"`
	Run      id.Run  `json:"run"`
	Tool     string  `json:"tool"`
	Level    string  `json:"level,omitempty"` // of a log line, as the tool names it; empty for progress
	Progress float64 `json:"progress,omitempty"`
	Total    float64 `json:"total,omitempty"` // 0: not known
	Message  string  `json:"message,omitempty"`

	// Of an MCP server's, for its client: the notification or request as it came. What is asked is answered with a Reply.
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Ask    int             `json:"ask,omitempty"` // the number of its call.asked, of a request
}

// String says it in a line. What the tool said is in it as it came.
func (n News) String() string {
	var amount string
	switch {
	case n.Level != "":
		amount = n.Level
	case n.Total > 0:
		amount = fmt.Sprintf("%.0f%%", 100*min(max(n.Progress/n.Total, 0), 1))
	default:
		amount = fmt.Sprintf("%g", n.Progress)
	}
	return strings.TrimSuffix(n.Tool+": "+amount+" "+n.Message, " ")
}
