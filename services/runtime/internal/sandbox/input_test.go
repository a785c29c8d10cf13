package sandbox

import (
	"encoding/json"
	"strings"
	"testing"
)

// A script finds its input as it was given, and cannot change it.
func TestInput(t *testing.T) {
	p := newPool(t)
	deep := strings.Repeat(`{"a":`, 3000) + "1" + strings.Repeat("}", 3000)
	for name, tc := range map[string]struct{ input, js, want string }{
		"none":              {"", `return [typeof input, input?.a]`, `["undefined",null]`},
		"values":            {`{"a":[1,{"b":"<é"}],"c":null}`, `return input`, `{"a":[1,{"b":"<é"}],"c":null}`},
		"it stays":          {`{"a":[1]}`, `try { input.a.push(2) } catch (e) { return [e.name, input.a, Object.isFrozen(input.a)] }`, `["TypeError",[1],true]`},
		"it is not another": {`{"a":1}`, `try { globalThis.input = 5 } catch {} return input.a`, `1`},
		"a name of its own": {`{"a":1}`, `const input = 7; return input`, `7`},
		"a trap of names":   {`{"__proto__":{"x":1},"constructor":2}`, `return [input.x, input.constructor, Object.keys(input)]`, `[null,2,["__proto__","constructor"]]`},
		"nested deeply":     {deep, `let n = 0; for (let v = input; v.a; v = v.a) n++; return n`, `3000`},
	} {
		t.Run(name, func(t *testing.T) {
			job := script(tc.js)
			job.Input = json.RawMessage(tc.input)
			got, err := p.Run(t.Context(), "t1", job, &fakeHost{})
			if err != nil || string(got.Value) != tc.want {
				t.Errorf("%s, %v; want %s", got.Value, err, tc.want)
			}
		})
	}
}
