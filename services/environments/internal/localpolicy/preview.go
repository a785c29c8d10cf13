package localpolicy

import (
	"fmt"
	"strconv"
	"strings"
)

func (p *Policy) validatePreview() error {
	if len(p.Preview) > 64 {
		return fmt.Errorf("preview lists %d ranges, over 64", len(p.Preview))
	}
	for _, text := range p.Preview {
		if _, _, ok := portRange(text); !ok {
			return fmt.Errorf("preview %.40q is no port and no range such as 3000-3999", text)
		}
	}
	return nil
}

func portRange(text string) (from, to int, ok bool) {
	low, high, both := strings.Cut(text, "-")
	if !both {
		high = low
	}
	from, errFrom := strconv.Atoi(low)
	to, errTo := strconv.Atoi(high)
	return from, to, errFrom == nil && errTo == nil && from >= 1 && from <= to && to <= 65535
}

// MayPreview says whether a person may look at a port of commands.
func (p *Policy) MayPreview(port int) error {
	for _, text := range p.Preview {
		if from, to, ok := portRange(text); ok && port >= from && port <= to {
			return nil
		}
	}
	return denied("preview", "port %d may not be looked at", port)
}
