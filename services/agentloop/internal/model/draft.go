package model

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// draft is an answer in the making. Its methods refuse what is over a limit, so it never holds more.
type draft struct {
	limits    Limits
	onDelta   func(string)
	text      strings.Builder
	calls     []*draftCall
	argsBytes int
	usage     Usage
}

type draftCall struct {
	id, name string
	args     strings.Builder
}

func newDraft(limits Limits, onDelta func(string)) *draft {
	if onDelta == nil {
		onDelta = func(string) {}
	}
	return &draft{limits: limits, onDelta: onDelta}
}

func (d *draft) addText(s string) error {
	if s == "" {
		return nil
	}
	if d.text.Len()+len(s) > d.limits.TextBytes {
		return final(problem.TooLarge, "the model's answer is over %d bytes", d.limits.TextBytes)
	}
	d.text.WriteString(s)
	d.onDelta(s)
	return nil
}

func (d *draft) addCall(id, name string) (*draftCall, error) {
	if len(d.calls) == d.limits.ToolCalls {
		return nil, final(problem.TooLarge, "the model asks for more than %d tools at once", d.limits.ToolCalls)
	}
	c := &draftCall{id: id, name: name}
	d.calls = append(d.calls, c)
	return c, nil
}

func (d *draft) addArgs(c *draftCall, s string) error {
	if d.argsBytes += len(s); d.argsBytes > d.limits.ArgsBytes {
		return final(problem.TooLarge, "the model's tool arguments are over %d bytes", d.limits.ArgsBytes)
	}
	c.args.WriteString(s)
	return nil
}

// answer checks the whole and gives it out. It is called only once the terminal marker, stop, has arrived.
func (d *draft) answer(stop StopReason) (Answer, error) {
	a := Answer{Text: d.text.String(), StopReason: stop, Usage: d.usage}
	seen := map[string]bool{}
	for _, c := range d.calls {
		call, err := c.call(stop)
		if err != nil {
			return Answer{}, err
		}
		if seen[call.ID] {
			return Answer{}, broken("the model gave two tool calls the same id")
		}
		seen[call.ID] = true
		a.ToolCalls = append(a.ToolCalls, call)
	}
	switch {
	case len(a.ToolCalls) > 0 && stop == StopEnd:
		a.StopReason = StopToolCalls // some servers say "stop" either way
	case len(a.ToolCalls) == 0 && stop == StopToolCalls:
		return Answer{}, broken("the model stopped for tool calls and made none")
	}
	return a, nil
}

// ToolName is the rule that both protocols set for the names of tools.
var ToolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// callIDBytes bounds an id, which is repeated in every later request.
const callIDBytes = 256

func (c *draftCall) call(stop StopReason) (ToolCall, error) {
	if c.id == "" || len(c.id) > callIDBytes {
		return ToolCall{}, broken("the model's tool call has no usable id")
	}
	if !ToolName.MatchString(c.name) {
		return ToolCall{}, broken("the model's tool call names no tool")
	}
	args := strings.Trim(c.args.String(), jsonSpace)
	if args == "" {
		args = "{}" // a tool without arguments
	}
	if err := checkObject(args); err != nil {
		if stop == StopLength {
			return ToolCall{}, final(problem.Upstream, "the output limit cut the model's arguments for %s", c.name)
		}
		return ToolCall{}, broken("the model's arguments for %s are %v", c.name, err)
	}
	return ToolCall{ID: c.id, Name: c.name, Args: json.RawMessage(args)}, nil
}

// setUsage keeps what can be billed: a provider's nonsense must not refund a budget.
func (d *draft) setUsage(input, output int64) {
	if input >= 0 && output >= 0 {
		d.usage = Usage{InputTokens: input, OutputTokens: output, Reported: true}
	}
}
