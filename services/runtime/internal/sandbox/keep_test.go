package sandbox

import (
	"context"
	"encoding/json"
)

func (h *fakeHost) SearchTools(_ context.Context, q Search) (json.RawMessage, error) {
	return json.Marshal([]Search{q})
}

func (h *fakeHost) Artifact(context.Context, Artifact) (Kept, error) { return h.kept, nil }
