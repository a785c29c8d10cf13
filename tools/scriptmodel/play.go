package scriptmodel

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// answer is a rendered turn.
type answer struct {
	turn  int // from 1
	text  string
	calls []toolCall
	cut   *Fault
}

type toolCall struct {
	id, tool, args string
}

// play renders the turn that the conversation has come to.
func (s Script) play(c *conversation) (answer, error) {
	if c.turns >= len(s.Turns) {
		return answer{}, fmt.Errorf("the script has %d turns, and the conversation already has as many", len(s.Turns))
	}
	turn, v := s.Turns[c.turns], c.view()
	a := answer{turn: c.turns + 1}
	var err error
	if a.text, err = render(turn.Text, v); err != nil {
		return answer{}, err
	}
	for i, call := range turn.Calls {
		args, err := call.render(v)
		if err != nil {
			return answer{}, fmt.Errorf("%s: %w", call.Tool, err)
		}
		a.calls = append(a.calls, toolCall{fmt.Sprintf("call_scripted_%d_%d", a.turn, i+1), call.Tool, args})
	}
	return a, nil
}

func (c Call) render(v View) (string, error) {
	args := map[string]json.RawMessage{}
	for name, text := range c.Args {
		s, err := render(text, v)
		if err != nil {
			return "", err
		}
		if args[name], err = json.Marshal(s); err != nil {
			return "", err
		}
	}
	for name, text := range c.Values {
		s, err := render(text, v)
		if err != nil {
			return "", err
		}
		args[name] = json.RawMessage(s)
	}
	raw, err := json.Marshal(args) // also refuses a value that is not JSON; sorted by name, so equal for equal requests
	return string(raw), err
}

// pieces cuts a text as a provider's tokens would, so that a client has to put it together again.
func pieces(s string) []string {
	const size = 12
	var out []string
	for len(s) > size {
		end := size
		for !utf8.RuneStart(s[end]) {
			end--
		}
		out, s = append(out, s[:end]), s[end:]
	}
	if s != "" {
		out = append(out, s)
	}
	return out
}

// tokens is a rough count: four bytes are about one token of English.
func tokens(n int) int { return n/4 + 1 }

func (a answer) tokens() int {
	n := len(a.text)
	for _, c := range a.calls {
		n += len(c.tool) + len(c.args)
	}
	return tokens(n)
}
