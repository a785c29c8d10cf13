package mcp

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/schemas/call"
)

// Who stops waiting for a task answers nothing for its client: the question is there for whoever waits next. Of a call that is
// no task there is no next one, and its server hears that nobody answers.
func TestQuestionOfATaskOutlastsWhoWaits(t *testing.T) {
	for name, c := range map[string]struct {
		related mcp.Meta
		answers bool
	}{"a task": {relatedTo(standing{call: "call_1"}), false}, "a call": {nil, true}} {
		t.Run(name, func(t *testing.T) {
			here, there := mcp.NewInMemoryTransports()
			session, err := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil).Connect(t.Context(), here, nil)
			if err != nil {
				t.Fatal(err)
			}
			asked := make(chan struct{})
			client, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
				ElicitationHandler: func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					close(asked)
					<-ctx.Done() // the person takes their time
					return nil, ctx.Err()
				}}).Connect(t.Context(), there, &mcp.ClientSessionOptions{ProtocolVersion: sessionTasks})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			tell := &teller{ctx: t.Context(), session: session, related: c.related}
			var stop context.CancelFunc
			tell.open, stop = context.WithCancel(t.Context())
			defer stop()
			var answers []executor.Relayed
			tell.tell(&said{News: call.News{Method: "elicitation/create", Params: json.RawMessage(`{"message":"who?","requestedSchema":{"type":"object","properties":{}}}`), Ask: 1},
				answer: func(raw []byte) {
					var one executor.Relayed
					if err := json.Unmarshal(raw, &one); err != nil {
						t.Error(err)
					}
					answers = append(answers, one)
				}})
			<-asked
			stop()
			tell.wait()
			if (len(answers) == 1) != c.answers || len(answers) > 0 && answers[0].Problem == nil {
				t.Errorf("answered %+v", answers)
			}
		})
	}
}
