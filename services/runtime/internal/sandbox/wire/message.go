package wire

import "encoding/json"

// Run is the script and everything it can depend on: the same Run with the same replies gives the same result.
type Run struct {
	Source   string          `json:"source"`
	Input    json.RawMessage `json:"input,omitempty"`
	Seed     uint64          `json:"seed"`
	NowMilli int64           `json:"now"`
	Tools    []string        `json:"tools"`
	Fetch    bool            `json:"fetch"`
	Limits   Limits          `json:"limits"`
}

// Call asks for a tool. All requests share one sequence, from 1, in the order in which the script issued them. It rises
// and never goes above Limits.Requests; a number that is left out is of a request that the worker refused.
type Call struct {
	Seq  int             `json:"seq"`
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
}

// Field is one header line.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Fetch asks for a URL.
type Fetch struct {
	Seq    int     `json:"seq"`
	Method string  `json:"method"`
	URL    string  `json:"url"`
	Header []Field `json:"header,omitempty"`
	Body   []byte  `json:"body,omitempty"`
}

// Search asks what a script may call: by Query, or of one Tool.
type Search struct {
	Seq   int    `json:"seq"`
	Query string `json:"query,omitempty"`
	Limit int    `json:"limit,omitempty"`
	Tool  string `json:"tool,omitempty"`
}

// Artifact asks for one operation on the artifacts of the script's session.
type Artifact struct {
	Seq  int    `json:"seq"`
	Op   string `json:"op"`
	Name string `json:"name,omitempty"`
	Type string `json:"type,omitempty"` // of Body: text, json or bytes
	Body []byte `json:"body,omitempty"`
}

// Kept answers an Artifact: with Type and Body when it got one, with JSON otherwise.
type Kept struct {
	Value json.RawMessage `json:"value,omitempty"`
	Type  string          `json:"type,omitempty"`
	Body  []byte          `json:"body,omitempty"`
}

// Log is one console line.
type Log struct {
	Level string `json:"level"`
	Line  string `json:"line"`
}

// Reply answers a Call or a Search with Value, a Fetch with Response, an Artifact with Kept, and each with Problem.
type Reply struct {
	Seq      int             `json:"seq"`
	Value    json.RawMessage `json:"value,omitempty"`
	Response *Response       `json:"response,omitempty"`
	Kept     *Kept           `json:"kept,omitempty"`
	Problem  *Problem        `json:"problem,omitempty"`
}

// Response is what a fetch brought.
type Response struct {
	Status     int     `json:"status"`
	StatusText string  `json:"status_text"`
	URL        string  `json:"url"`
	Header     []Field `json:"header,omitempty"`
	Body       []byte  `json:"body,omitempty"`
}

// Problem is the part of an error that a script may see.
type Problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Done is a script's value, JSON made inside the worker.
type Done struct {
	Value    json.RawMessage `json:"value"`
	Warnings []string        `json:"warnings,omitempty"`
	Usage    Usage           `json:"usage"`
}

// Fail says why a script has no value. Line and Col are positions in the source as it was sent; zero when unknown.
type Fail struct {
	Code     string   `json:"code"`
	Name     string   `json:"name,omitempty"`
	Message  string   `json:"message"`
	Line     int      `json:"line,omitempty"`
	Col      int      `json:"col,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	Usage    Usage    `json:"usage"`
}

// Usage is what the worker measured of itself.
type Usage struct {
	CPUMicros int64 `json:"cpu_us"`
	HeapBytes int64 `json:"heap"`
}

// Ready says that nothing of the scripts so far is left and a new VM waits. It comes once after each last word, from a
// worker that can go on.
type Ready struct {
	Scripts     int   `json:"scripts"` // that the worker has run
	CPUMicros   int64 `json:"cpu_us"`  // of the process since its start
	MemoryBytes int64 `json:"memory"`  // that it holds, garbage and free spans included
}

// Spoils says whether a script that failed with a code leaves a worker behind that nobody else should have: one that
// was stopped in the middle of something.
func Spoils(code string) bool {
	switch code {
	case "cpu_limit", "memory_limit", "stack_overflow", "deadlock", "sandbox_fault", "timeout", "replay_divergence", "output_too_large":
		return true
	}
	return false
}

// Version changes with the messages. Parent and worker are built together, so a mismatch is a deployment fault.
const Version = 4

// Hello is the worker's first word.
type Hello struct {
	Version   int       `json:"version"`
	Isolation Isolation `json:"isolation"`
}

// Isolation is what holds in a worker. The worker says it before it reads an untrusted byte; each Denied field is a
// refusal that it met by trying.
type Isolation struct {
	// Namespaces identify the worker's namespaces by kind, as the kernel prints them.
	Namespaces map[string]string `json:"namespaces"`

	NoNewPrivs   bool `json:"no_new_privs"`
	Seccomp      bool `json:"seccomp"`
	Landlock     int  `json:"landlock"` // the ABI that is enforced, 0 for none
	Rlimits      bool `json:"rlimits"`
	FilesDenied  bool `json:"files_denied"`
	SocketDenied bool `json:"socket_denied"`
	ExecDenied   bool `json:"exec_denied"`
	EmptyEnv     bool `json:"empty_env"`

	// Faults say why something above does not hold. They are for operators.
	Faults []string `json:"faults,omitempty"`
}

// Error lets a Fail travel as an error inside the worker.
func (f *Fail) Error() string { return f.Code + ": " + f.Message }
