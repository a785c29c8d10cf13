package declare

import "slices"

// What a script has whatever it may call. docs/06-scripts.md tells the rest.
const (
	search = step + `search(words: string, options?: {limit?: number}): Promise<{name: string; description: string; writes: boolean}[]>
`
	describe = step + `describe(name: string): Promise<{name: string; description: string; writes: boolean; types: string; schema: any}>
`
	globals = `declare const input: any // what the script was given to work on; undefined if nothing
/** Named values for later scripts of the session: a string is kept as text, bytes as bytes, everything else as JSON. */
declare const artifacts: {
 put(name: string, value: any): Promise<{name: string; type: "text" | "json" | "bytes"; size: number; digest: string}>
 get(name: string): Promise<any> // null if there is none
 list(): Promise<{name: string; type: "text" | "json" | "bytes"; size: number; digest: string}[]>
 delete(name: string): Promise<boolean>
}
interface Response { markdown(): Promise<string>; plain(): Promise<string> }
`
)

// WriteScript is Write with what a script has beside its tools: the ways to look for tools, and artifacts.
func WriteScript(tools []*Tool, most int) Written {
	lookups := ""
	for _, l := range [...]struct{ name, line string }{{"search", search}, {"describe", describe}} {
		if !slices.ContainsFunc(tools, func(t *Tool) bool { return t.connection == l.name }) { // its tools are declared there
			lookups += l.line
		}
	}
	out := write(tools, most-len(search)-len(describe)-len(globals), lookups)
	if out.Tools == 0 {
		out.Text = head + lookups + foot
	}
	out.Text += globals
	return out
}
