package scriptmodel

import "fmt"

// conversation is what both protocols' requests come down to.
type conversation struct {
	prompt string
	turns  int // of the assistant
	calls  []call
	byID   map[string]int // index in calls
}

type call struct {
	tool     string
	result   string
	answered bool
}

func newConversation() *conversation { return &conversation{byID: map[string]int{}} }

// settled says that every call has its result, without which neither side may speak on.
func (c *conversation) settled() error {
	for id, i := range c.byID {
		if !c.calls[i].answered {
			return fmt.Errorf("tool call %s has no result", id)
		}
	}
	return nil
}

func (c *conversation) user(text string) {
	if c.prompt == "" {
		c.prompt = text
	}
}

func (c *conversation) call(id, tool string) error {
	if _, twice := c.byID[id]; twice || id == "" {
		return fmt.Errorf("tool call id %q is empty or used twice", id)
	}
	c.byID[id] = len(c.calls)
	c.calls = append(c.calls, call{tool: tool})
	return nil
}

func (c *conversation) result(id, text string) error {
	i, known := c.byID[id]
	if !known || c.calls[i].answered {
		return fmt.Errorf("the result for %q answers no open tool call", id)
	}
	c.calls[i].result, c.calls[i].answered = text, true
	return nil
}

func (c *conversation) view() View {
	v := View{Prompt: c.prompt}
	for _, call := range c.calls {
		v.Results = append(v.Results, Result{call.tool, call.result})
	}
	return v
}
