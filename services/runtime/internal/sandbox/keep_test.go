package sandbox

import (
	"context"
	"encoding/json"
	"testing"
)

func (h *fakeHost) SearchTools(_ context.Context, q Search) (json.RawMessage, error) {
	return json.Marshal([]Search{q})
}

func (h *fakeHost) Artifact(ctx context.Context, a Artifact) (Kept, error) {
	if h.keep != nil {
		return h.keep(ctx, a)
	}
	return h.kept, nil
}

// An operation on artifacts is over before anything else happens to its script, however late it is answered: so the
// script goes the same way when it is run again, and the record needs no place for it.
func TestArtifactsComeFirst(t *testing.T) {
	p := newPool(t)
	for name, tc := range map[string]struct{ js, want string }{
		"a call and a timer race it": {`const order = [];
			const all = [tools.a.b({}).then(() => order.push("call")), new Promise((done) => setTimeout(done, 0)).then(() => order.push("timer")),
				artifacts.get("x").then(() => order.push("kept"))];
			await Promise.all(all);
			return order[0]`, `"kept"`},
		"one after the other": {`const order = [];
			const call = tools.a.b({}).then(() => order.push("call"));
			await artifacts.put("x", 1); order.push(1); await artifacts.list(); order.push(2);
			await call;
			return order`, `[1,2,"call"]`},
		"nobody waits for it": {`const call = tools.a.b({}); artifacts.put("x", 1); return 1`, `1`},
	} {
		t.Run(name, func(t *testing.T) {
			answered := make(chan struct{}) // the call
			host := &fakeHost{kept: Kept{Value: json.RawMessage("null")}, said: func(seq int) {
				if seq == 1 {
					close(answered)
				}
			}}
			host.keep = func(ctx context.Context, _ Artifact) (Kept, error) {
				select {
				case <-answered:
				case <-ctx.Done():
				}
				return host.kept, nil
			}
			got, err := p.Run(t.Context(), "t1", script(tc.js), host)
			if err != nil || string(got.Value) != tc.want {
				t.Errorf("%s, %v; want %s", got.Value, err, tc.want)
			}
		})
	}
}
