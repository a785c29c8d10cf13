package machine

import "github.com/execwarden/execwarden/schemas/connection"

// TestResultsArgs are of machine.test_results: files, or what a command printed.
type TestResultsArgs struct {
	Paths  []string `json:"paths,omitempty"`  // at most 200
	Glob   string   `json:"glob,omitempty"`   // in the volume
	Exec   string   `json:"exec,omitempty"`   // its standard output
	Format string   `json:"format,omitempty"` // auto (default), junit or go
}

// TestResults is what tests reported.
type TestResults struct {
	Passed    int          `json:"passed"`
	Failed    int          `json:"failed"`
	Skipped   int          `json:"skipped"`
	Errors    int          `json:"errors"`     // that are no test's verdict: one that broke down, a package that does not build
	Duration  float64      `json:"duration_s"` // of all tests together
	Failures  []TestFailed `json:"failures"`   // failed and broken, at most 100
	Files     int          `json:"files,omitempty"`
	Running   bool         `json:"running,omitempty"`   // the command has not ended: there may be more
	Truncated string       `json:"truncated,omitempty"` // why there may be more
	Faults    []string     `json:"faults,omitempty"`    // files that are no reports, with why; at most 20
}

// TestFailed is a test that did not pass.
type TestFailed struct {
	Name    string `json:"name"`
	File    string `json:"file,omitempty"` // as far as the report says
	Line    int    `json:"line,omitempty"`
	Message string `json:"message,omitempty"` // at most 2 KiB
}

var resultTools = []connection.Tool{
	tool("test_results", connection.Pure, false, "Read test reports (JUnit XML, or go test -json) of files or of what a command printed, and answer with counts and failures.",
		`"paths":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":200},"glob":{"type":"string","description":"such as **/TEST-*.xml"},"exec":{"type":"string","description":"as exec answered it"},"format":{"enum":["auto","junit","go"]}`, ""),
}
