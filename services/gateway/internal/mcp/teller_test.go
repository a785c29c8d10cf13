package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
)

// asked has a client asked by a teller, until stop; answers are those that the server of the call was given.
func asked(t *testing.T, related mcp.Meta, by func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error)) (tell *teller, stop func(), answers *[]executor.Relayed) {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	session, err := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{ElicitationHandler: by}).
		Connect(t.Context(), there, &mcp.ClientSessionOptions{ProtocolVersion: sessionTasks})
	if err != nil {
		t.Fatal(err)
	}
	tell = &teller{ctx: t.Context(), session: session, related: related}
	tell.open, stop = context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); tell.wait(); _ = client.Close() }) // it may be closed
	answers = &[]executor.Relayed{}
	tell.tell(&said{News: call.News{Method: "elicitation/create", Params: json.RawMessage(`{"message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`), Ask: 1},
		answer: func(raw []byte) {
			var one executor.Relayed
			if err := json.Unmarshal(raw, &one); err != nil || len(raw) > executor.MaxAnswer {
				t.Errorf("%d bytes, %v", len(raw), err)
			}
			*answers = append(*answers, one)
		}})
	return tell, stop, answers
}

// Who stops waiting for a task answers nothing for its client: the question is there for whoever waits next. Of a call that is
// no task there is no next one, and its server hears that nobody answers.
func TestQuestionOfATaskOutlastsWhoWaits(t *testing.T) {
	for name, c := range map[string]struct {
		related mcp.Meta
		answers bool
	}{"a task": {relatedTo(standing{call: "call_1"}), false}, "a call": {nil, true}} {
		t.Run(name, func(t *testing.T) {
			put := make(chan struct{})
			tell, stop, answers := asked(t, c.related, func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				close(put)
				<-ctx.Done() // the person takes their time
				return nil, ctx.Err()
			})
			<-put
			stop()
			tell.wait()
			if (len(*answers) == 1) != c.answers || c.answers && (*answers)[0].Problem == nil {
				t.Errorf("answered %+v", *answers)
			}
		})
	}
}

// An answer that cannot be passed on is no silence: its server hears why.
func TestAnswerThatIsTooLarge(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		taken bool
	}{"short": {"Ada", true}, "long": {strings.Repeat("x", executor.MaxAnswer), false}, "long as it is written": {strings.Repeat("<", executor.MaxAnswer/5), false}} {
		t.Run(name, func(t *testing.T) {
			tell, _, answers := asked(t, nil, func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": c.text}}, nil
			})
			tell.wait()
			if len(*answers) != 1 || ((*answers)[0].Problem == nil) != c.taken || !c.taken && (*answers)[0].Problem.Code != problem.TooLarge {
				t.Errorf("%.300v", *answers)
			}
		})
	}
}
