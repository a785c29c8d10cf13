package ask

import "github.com/execwarden/execwarden/schemas/id"

// WatchResource asks that an external agent's conversation be told when a resource changes: decided like a call that reads it.
// What is answered holds for a while and is asked again before it lapses, and before each news is passed on.
type WatchResource struct {
	Agent      id.Agent        `json:"agent"`
	Run        id.Run          `json:"run"`
	Watcher    id.Conversation `json:"watcher"` // the same for as long as it watches
	Connection string          `json:"connection"`
	URI        string          `json:"uri"`
	Taint      bool            `json:"taint,omitempty"`
	Ended      bool            `json:"ended,omitempty"` // it need not be told any more
}

// Watched says that news of a resource are told.
type Watched struct{}
