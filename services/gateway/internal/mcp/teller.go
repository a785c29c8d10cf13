package mcp

//lint:file-ignore SA1019 sampling, roots and logging are to leave the protocol in 2027; the servers of today use them

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
)

// tell passes one word on. A client that is gone misses it.
func (t *teller) tell(word *said) {
	word.heard()
	t.seen = max(t.seen, word.N)
	if t.session == nil {
		return
	}
	if word.answer != nil {
		if word.Ask != 0 && t.asked[word.Ask] {
			return // it came twice: as it was asked, and as one that is open
		}
		if t.asked == nil {
			t.asked = map[int]bool{}
		}
		t.asked[word.Ask] = true
		t.asking.Go(func() { t.ask(word) })
		return
	}
	switch word.Method {
	case "notifications/progress":
		p := &mcp.ProgressNotificationParams{}
		if t.token == nil || json.Unmarshal(word.Params, p) != nil {
			return
		}
		p.Meta = t.about(p.Meta)
		p.ProgressToken = t.token // the client's own, not the one that the broker gave the server
		_ = t.session.NotifyProgress(t.ctx, p)
	case "notifications/message":
		p := &mcp.LoggingMessageParams{}
		if json.Unmarshal(word.Params, p) == nil {
			_ = t.session.Log(t.ctx, p)
		}
	case "notifications/elicitation/complete":
		p := &mcp.ElicitationCompleteParams{}
		if json.Unmarshal(word.Params, p) == nil {
			_ = t.session.NotifyElicitationComplete(t.ctx, p)
		}
	case "": // of what is no MCP server
		t.say(word)
	}
}

// about adds to what is said of a task which task that is.
func (t *teller) about(meta mcp.Meta) mcp.Meta {
	if t.related == nil {
		return meta
	}
	out := maps.Clone(t.related)
	maps.Copy(out, meta)
	out[relatedTask] = t.related[relatedTask] // whatever its server says
	return out
}

func (t *teller) say(word *said) {
	if word.Level != "" {
		_ = t.session.Log(t.ctx, &mcp.LoggingMessageParams{Level: mcp.LoggingLevel(word.Level), Logger: word.Tool, Data: word.Message})
		return
	}
	if t.token != nil {
		_ = t.session.NotifyProgress(t.ctx, &mcp.ProgressNotificationParams{Meta: t.about(nil), ProgressToken: t.token, Progress: word.Progress, Total: word.Total, Message: word.Message})
	}
}

// ask asks the client, and gives its answer back. What is asked is the server's own, and read by the SDK: whatever goes wrong there
// ends this question alone.
func (t *teller) ask(word *said) {
	defer func() {
		if why := recover(); why != nil {
			d := problem.Detail{Code: problem.Internal, Message: "the question could not be asked"}
			if raw, err := json.Marshal(executor.Relayed{Problem: &d}); err == nil {
				word.answer(raw)
			}
		}
	}()
	var answer any
	var err error
	switch word.Method {
	case "elicitation/create":
		p := &mcp.ElicitParams{}
		if err = json.Unmarshal(word.Params, p); err == nil {
			p.Meta = t.about(p.Meta)
			answer, err = t.session.Elicit(t.open, p)
		}
	case "sampling/createMessage":
		p := &mcp.CreateMessageWithToolsParams{}
		if err = json.Unmarshal(word.Params, p); err == nil {
			p.Meta = t.about(p.Meta)
			answer, err = t.session.CreateMessageWithTools(t.open, p)
		}
	case "roots/list":
		answer, err = t.session.ListRoots(t.open, &mcp.ListRootsParams{Meta: t.about(nil)})
	default:
		err = problem.New(problem.Invalid, "a client is not asked %s", clip(word.Method))
	}
	if err != nil && t.related != nil && t.open.Err() != nil {
		return // who waited for the task stopped, which gives nothing up: the question stays open for whoever asks next
	}
	var back executor.Relayed
	if err == nil {
		back.Result, err = json.Marshal(answer)
	}
	if err != nil {
		d := problem.DetailOf(problem.Wrap(err, problem.Unavailable, "the client did not answer: %.300s", err.Error()))
		back = executor.Relayed{Problem: &d}
	}
	raw, err := json.Marshal(back)
	if err == nil && len(raw) > executor.MaxAnswer { // nobody would take it, and whoever asks would wait in vain
		raw, err = json.Marshal(executor.Relayed{Problem: &problem.Detail{Code: problem.TooLarge, Message: fmt.Sprintf("the client's answer is %d bytes as it is passed on, over %d", len(raw), executor.MaxAnswer)}})
	}
	if err == nil {
		word.answer(raw)
	}
}
