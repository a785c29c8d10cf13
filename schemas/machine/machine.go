// Package machine is the language of the tools that an attached machine has: their names, what they take and what they
// answer. The broker shows and decides them, a connector carries them out.
package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/execwarden/execwarden/schemas/connection"
)

// Connection is the name in front of the tools.
const Connection = "machine"

// ExecArgs are of machine.exec. Argv or Command, not both: a command line is the machine's shell's, which its policy may
// forbid on its own.
type ExecArgs struct {
	Argv       []string          `json:"argv,omitempty"`
	Command    string            `json:"command,omitempty"`
	Cwd        string            `json:"cwd,omitempty"` // in the volume; default: its top
	Env        map[string]string `json:"env,omitempty"`
	Stdin      string            `json:"stdin,omitempty"`
	Timeout    int               `json:"timeout_s,omitempty"`  // default 120, at most 3600
	Background bool              `json:"background,omitempty"` // answer once it runs; read its output with exec_read
}

// ExecReadArgs are of machine.exec_read.
type ExecReadArgs struct {
	Exec  string `json:"exec"`
	After int64  `json:"after_offset,omitempty"` // bytes of the output that are known already
	Max   int    `json:"max_bytes,omitempty"`    // default 64 KiB, at most 256 KiB
	Wait  int    `json:"wait_s,omitempty"`       // for more output, or its end; at most 60
}

// ExecWriteArgs are of machine.exec_write.
type ExecWriteArgs struct {
	Exec string `json:"exec"`
	Data string `json:"data,omitempty"`
	EOF  bool   `json:"eof,omitempty"`
}

// ExecSignalArgs are of machine.exec_signal. The signal goes to the command and everything that it began.
type ExecSignalArgs struct {
	Exec   string `json:"exec"`
	Signal string `json:"signal"` // TERM, INT, HUP, QUIT, USR1, USR2 or KILL
}

// ReadFileArgs are of machine.read_file.
type ReadFileArgs struct {
	Path      string `json:"path"`
	Offset    int64  `json:"offset,omitempty"`
	Max       int    `json:"max_bytes,omitempty"`  // default 64 KiB, at most 256 KiB
	IfChanged string `json:"if_changed,omitempty"` // SHA-256 of the version that is known
}

// WriteFileArgs are of machine.write_file. The file is there as a whole or as it was before.
type WriteFileArgs struct {
	Path     string `json:"path"`
	Content  string `json:"content"`
	Encoding string `json:"encoding,omitempty"` // utf-8 (default) or base64
	IfMatch  string `json:"if_match,omitempty"` // SHA-256 of the version that is replaced, or "absent"
	Mode     string `json:"mode,omitempty"`     // octal, such as 0755; default: as it was, or 0644
}

// EditFileArgs are of machine.edit_file.
type EditFileArgs struct {
	Path    string `json:"path"`
	Edits   []Edit `json:"edits"`
	IfMatch string `json:"if_match,omitempty"`
}

// Edit replaces a text that is there exactly once, or everywhere with All.
type Edit struct {
	Old string `json:"old"`
	New string `json:"new"`
	All bool   `json:"all,omitempty"`
}

// PatchArgs are of machine.apply_patch: a unified diff over one or more files, applied as a whole or not at all.
type PatchArgs struct {
	Patch string `json:"patch"`
	Check bool   `json:"check,omitempty"` // say whether it applies, and change nothing
}

// ListArgs are of machine.list.
type ListArgs struct {
	Path  string `json:"path,omitempty"`
	Depth int    `json:"depth,omitempty"` // default 1, at most 5
}

// GlobArgs are of machine.glob.
type GlobArgs struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path,omitempty"`
}

// GrepArgs are of machine.grep.
type GrepArgs struct {
	Pattern string `json:"pattern"` // RE2
	Path    string `json:"path,omitempty"`
	Glob    string `json:"glob,omitempty"`
	Max     int    `json:"max_matches,omitempty"` // default 100, at most 1000
}

// Args reads a tool's arguments, which a model made. A name that the tool does not know is an error: it might have meant
// something.
func Args[A any](raw []byte) (a A, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err = d.Decode(&a); err != nil {
		err = fmt.Errorf("the arguments are not those of the tool: %w", err)
	}
	return a, err
}

// Exec is how a command stands or ended.
type Exec struct {
	Exec      string `json:"exec"`
	State     string `json:"state"`             // "running", "exited", "unknown"
	Reason    string `json:"reason,omitempty"`  // of its end: exited, timeout, cancelled, revoked, oom, lost, unknown
	Code      *int   `json:"code,omitempty"`    // when it exited by itself
	Signal    string `json:"signal,omitempty"`  // that ended it
	Bytes     int64  `json:"bytes"`             // of output, stdout and stderr together
	Lost      int64  `json:"lost,omitempty"`    // bytes that were dropped; where, the output says
	SHA256    string `json:"sha256,omitempty"`  // of all output in order, hex
	Survivors int    `json:"survivors"`         // processes that were left
	Isolation string `json:"isolation"`         // what held it back
	Millis    int64  `json:"millis,omitempty"`  // that it ran
	Stdout    string `json:"stdout,omitempty"`  // head and tail, with what is between them counted
	Stderr    string `json:"stderr,omitempty"`  // the same
	Clipped   bool   `json:"clipped,omitempty"` // there is more output than is shown; exec_read has it
}

// Output is a piece of what a command printed.
type Output struct {
	Exec   string  `json:"exec"`
	Offset int64   `json:"offset"` // of the first byte
	Next   int64   `json:"next_offset"`
	Pieces []Piece `json:"pieces"`
	End    *Exec   `json:"end,omitempty"` // once it has ended, and everything was read
}

// Piece is output of one stream, or a gap.
type Piece struct {
	Stream string `json:"stream"`           // "stdout", "stderr" or "gap"
	Text   string `json:"text,omitempty"`   // where it is UTF-8
	Base64 string `json:"base64,omitempty"` // where it is not
	Lost   int64  `json:"lost,omitempty"`   // bytes of a gap
}

// Writes says whether a tool may change something; machine.<name> is its full name.
func Writes(full string) bool {
	return slices.ContainsFunc(all, func(t connection.Tool) bool { return t.Writes && Connection+"."+t.Name == full })
}

// Tools lists the tools, as the broker shows them.
func Tools() []connection.Tool { return all }

var all = slices.Concat(tools, httpTools, resultTools, watchTools, browserTools, containerTools)

func tool(name string, effect connection.Effect, writes bool, description, properties, required string) connection.Tool {
	schema := `{"type":"object","properties":{` + properties + `},"additionalProperties":false`
	if required != "" {
		schema += `,"required":[` + required + `]`
	}
	return connection.Tool{Name: name, Effect: effect, Writes: writes, Description: description, Schema: json.RawMessage(schema + "}")}
}

const (
	ofExec  = `"exec":{"type":"string","description":"as exec answered it"}`
	ofPath  = `"path":{"type":"string","description":"in the volume, or below a directory that the machine exposes"}`
	ofMatch = `"if_match":{"type":"string","description":"SHA-256 that read_file gave: refuse when the file changed since; absent: refuse when it is there"}`
)

var tools = append([]connection.Tool{
	tool("exec", connection.Opaque, true, "Run a command on the attached machine and answer with its exit code and output. Give argv, or command for the shell. With background it answers once the command runs.",
		`"argv":{"type":"array","items":{"type":"string"},"minItems":1},"command":{"type":"string","description":"for the shell, in place of argv"},"cwd":{"type":"string"},"env":{"type":"object","additionalProperties":{"type":"string"}},"stdin":{"type":"string"},"timeout_s":{"type":"integer","minimum":1,"maximum":3600},"background":{"type":"boolean"}`, ""),
	tool("exec_read", connection.Pure, false, "Read what a command printed, from an offset on, with its exit record once it has ended.",
		ofExec+`,"after_offset":{"type":"integer","minimum":0},"max_bytes":{"type":"integer","minimum":1,"maximum":262144},"wait_s":{"type":"integer","minimum":0,"maximum":60}`, `"exec"`),
	tool("exec_write", connection.Opaque, true, "Write to the standard input of a command that runs in the background.",
		ofExec+`,"data":{"type":"string"},"eof":{"type":"boolean"}`, `"exec"`),
	tool("exec_signal", connection.Opaque, true, "Send a signal to a command and everything that it began.",
		ofExec+`,"signal":{"enum":["TERM","INT","HUP","QUIT","USR1","USR2","KILL"]}`, `"exec","signal"`),
	tool("exec_list", connection.Pure, false, "List the commands of this attachment.", ``, ""),
	tool("read_file", connection.Pure, false, "Read a file, or a range of it, with its SHA-256.",
		ofPath+`,"offset":{"type":"integer","minimum":0},"max_bytes":{"type":"integer","minimum":1,"maximum":262144},"if_changed":{"type":"string"}`, `"path"`),
	tool("write_file", connection.Opaque, true, "Write a whole file; its directories are made.",
		ofPath+`,"content":{"type":"string"},"encoding":{"enum":["utf-8","base64"]},`+ofMatch+`,"mode":{"type":"string","pattern":"^0?[0-7]{3}$"}`, `"path","content"`),
	tool("edit_file", connection.Opaque, true, "Replace texts in a file. Each old text has to be there exactly once, unless all is set. All edits apply, or none.",
		ofPath+`,"edits":{"type":"array","minItems":1,"maxItems":100,"items":{"type":"object","properties":{"old":{"type":"string"},"new":{"type":"string"},"all":{"type":"boolean"}},"required":["old","new"],"additionalProperties":false}},`+ofMatch, `"path","edits"`),
	tool("apply_patch", connection.Opaque, true, "Apply a unified diff over one or more files: as a whole, or not at all.",
		`"patch":{"type":"string"},"check":{"type":"boolean"}`, `"patch"`),
	tool("list", connection.Pure, false, "List a directory.", ofPath+`,"depth":{"type":"integer","minimum":1,"maximum":5}`, ""),
	tool("glob", connection.Pure, false, "Find files by a pattern such as src/**/*.go.", `"pattern":{"type":"string"},`+ofPath, `"pattern"`),
	tool("grep", connection.Pure, false, "Find lines that match a regular expression (RE2).", `"pattern":{"type":"string"},`+ofPath+`,"glob":{"type":"string"},"max_matches":{"type":"integer","minimum":1,"maximum":1000}`, `"pattern"`),
}, gitTools...)
