package courier

import (
	"fmt"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/unseen"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/target"
)

// maxArgs is how much of the arguments a person is shown, in bytes, and of what is answered with them. The page has all of them.
const maxArgs = 4 << 10

// title says in one line what there is to tell.
func (n Notice) title() string {
	what := clean(n.Tool) + " for " + clean(id.Name(n.Agent))
	switch n.About {
	case target.Requested:
		return "Waits for approval: " + what
	case target.Escalated:
		return "Nobody decided yet: " + what
	case target.Decided:
		if n.State == "approved" {
			return "Approved: " + what
		}
		return "Denied: " + what
	case target.Expired:
		return "Expired, nobody decided: " + what
	}
	return "A test from ExecWarden"
}

// facts are the lines below the title.
func (n Notice) facts() (lines []string) {
	line := func(name, text string) {
		if text != "" {
			lines = append(lines, name+": "+clean(text))
		}
	}
	if n.About == Test {
		return []string{"Approvers are told here."}
	}
	line("Tenant", id.Name(n.Tenant))
	line("Why it is held", n.Reason)
	line("Decided by", n.By)
	line("Run", string(n.Run))
	line("Grant", id.Name(n.Grant))
	if n.About == target.Requested || n.About == target.Escalated {
		line("Until", n.Expires.UTC().Format(time.RFC1123))
	}
	return lines
}

// args are the arguments as people are shown them, with what is answered beside them; "" when the target is not told.
func (n Notice) args() string {
	text := shortened(n.Args)
	if len(n.Input) > 0 {
		text += " answering its server " + shortened(n.Input)
	}
	return text
}

func shortened(raw []byte) string {
	text := string(raw)
	if len(text) > maxArgs {
		text = strings.ToValidUTF8(text[:maxArgs], "") + fmt.Sprintf(" … (%d bytes in all)", len(raw))
	}
	return clean(text)
}

// clean drops what would hide or reorder text, or begin a line that is not ours: an agent, or a provider, may have
// chosen it.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unseen.Rune(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
