package engine

import (
	"regexp"
	"strings"
)

// hints are what to write instead of a name that other places have. A model that reads one writes a better script.
var hints = map[string]string{
	"require":              "there are no modules: what a script has is global, and tools are called as tools.<connection>.<tool>(args)",
	"module":               "there are no modules: return the value",
	"exports":              "there are no modules: return the value",
	"process":              "there is no process and no environment: write values into the script, or ask a tool",
	"Deno":                 "this is neither Deno nor node: there are tools, and fetch where the agent may",
	"Bun":                  "this is neither Bun nor node: there are tools, and fetch where the agent may",
	"fs":                   "there are no files: return the value, or call a tool",
	"path":                 "there are no files: join the parts as strings",
	"__dirname":            "there are no files",
	"__filename":           "there are no files",
	"Buffer":               "use Uint8Array, with TextEncoder and TextDecoder for text and toBase64, fromBase64, toHex, fromHex",
	"Intl":                 "use toLocaleString('en-US', options) and localeCompare",
	"Temporal":             "use Date",
	"global":               "use globalThis",
	"window":               "use globalThis: there is no page",
	"self":                 "use globalThis",
	"document":             "there is no page: fetch gives its text",
	"localStorage":         "there is no storage: return the value",
	"XMLHttpRequest":       "use fetch",
	"axios":                "use fetch",
	"WebSocket":            "use fetch: there are no sockets",
	"setImmediate":         "use setTimeout(f, 0)",
	"alert":                "use console.log",
	"WebAssembly":          "there is only JavaScript",
	"Worker":               "there is one thread: run calls together with Promise.all",
	"SharedArrayBuffer":    "there is one thread: use ArrayBuffer",
	"WeakRef":              "use a plain reference: the script is over soon",
	"FinalizationRegistry": "the script is over before anything is collected",
}

var undefinedName = regexp.MustCompile(`^(\w+) is not defined$`)

// hinted adds to a ReferenceError's message what to write instead.
func hinted(message string, tools []string) string {
	name := undefinedName.FindStringSubmatch(message)
	if name == nil {
		return message
	}
	if hint := hints[name[1]]; hint != "" {
		return message + ": " + hint
	}
	for _, tool := range tools {
		if connection, _, _ := strings.Cut(tool, "."); connection == name[1] {
			return message + ": write tools." + name[1]
		}
	}
	return message
}
