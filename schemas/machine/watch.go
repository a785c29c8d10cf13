package machine

import "github.com/execwarden/execwarden/schemas/connection"

// WatchArgs are of machine.watch. Without a cursor it begins, and answers at once with one.
type WatchArgs struct {
	Path  string `json:"path,omitempty"` // a directory; default: the volume
	Glob  string `json:"glob,omitempty"` // of the files that matter, such as **/*.go; default: all
	Since string `json:"since,omitempty"`
	Wait  int    `json:"wait_s,omitempty"` // for a change; at most 60
}

// Watched is what changed since a cursor.
type Watched struct {
	Cursor  string    `json:"cursor"` // to ask with the next time
	Changes []Changed `json:"changes"`
	// Resync says that nobody knows what changed since the cursor: it was not known any more, or too much changed. Look anew.
	Resync bool `json:"resync,omitempty"`
}

// Changed is a file that is not as it was.
type Changed struct {
	Path string `json:"path"`
	How  string `json:"how"` // created, modified or removed
}

var watchTools = []connection.Tool{
	tool("watch", connection.Pure, false, "Wait for files to change. Begin without since, then ask with the cursor of the answer before.",
		ofPath+`,"glob":{"type":"string"},"since":{"type":"string","description":"the cursor of the answer before"},"wait_s":{"type":"integer","minimum":0,"maximum":60}`, ""),
}
