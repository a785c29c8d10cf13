package machine

import "github.com/execwarden/execwarden/schemas/connection"

// HTTPArgs are of machine.http_private, which reads, and of machine.http_private_send, which may change something.
type HTTPArgs struct {
	Method  string            `json:"method,omitempty"` // GET (default) or HEAD; of the other tool POST, PUT, PATCH or DELETE
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`      // at most 256 KiB
	Timeout int               `json:"timeout_s,omitempty"` // for all of it; default 30, at most 120
	Max     int               `json:"max_bytes,omitempty"` // of the answer's body, decompressed; default 64 KiB, at most 256 KiB
}

// HTTP is what a private service answered.
type HTTP struct {
	URL       string            `json:"url"` // that answered, after redirects
	Status    int               `json:"status"`
	Address   string            `json:"address"` // that was dialled
	Headers   map[string]string `json:"headers"`
	Text      string            `json:"text,omitempty"`      // where the body is UTF-8
	Base64    string            `json:"base64,omitempty"`    // where it is not
	Bytes     int               `json:"bytes"`               // of the body that are shown
	Truncated bool              `json:"truncated,omitempty"` // there is more of it
	Broken    string            `json:"broken,omitempty"`    // why the body ended early
	Hops      []string          `json:"hops,omitempty"`      // URLs that redirected to the next
	Millis    int64             `json:"millis"`
}

const ofHTTP = `"url":{"type":"string"},"headers":{"type":"object","additionalProperties":{"type":"string"}},"timeout_s":{"type":"integer","minimum":1,"maximum":120},"max_bytes":{"type":"integer","minimum":1,"maximum":262144}`

// Two tools for one door, so that a grant to read is none to write.
var httpTools = []connection.Tool{
	tool("http_private", connection.Pure, false, "Read from an HTTP service that the attached machine reaches and its policy lists. Redirects are followed as far as they are listed too.",
		ofHTTP+`,"method":{"enum":["GET","HEAD"]}`, `"url"`),
	tool("http_private_send", connection.Opaque, true, "Send a request that may change something to an HTTP service that the attached machine reaches and its policy lists. Redirects are not followed.",
		ofHTTP+`,"method":{"enum":["POST","PUT","PATCH","DELETE"]},"body":{"type":"string","maxLength":262144}`, `"method","url"`),
}
