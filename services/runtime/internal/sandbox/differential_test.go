package sandbox

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

//go:embed testdata/node
var nodePrograms embed.FS

// encoded ends a program that gives JSON for what JSON cannot say.
const encoded = `
const encode = (v) => JSON.stringify(v, (_, x) =>
  typeof x === 'number' && (Object.is(x, -0) || x - x !== 0) ? 'number ' + (x === 0 ? '-0' : x)
  : typeof x === 'bigint' ? 'bigint ' + x : typeof x === 'symbol' ? 'symbol' : typeof x === 'function' ? 'function' : x === undefined ? 'undefined' : x);
return encode(await (async function () {
`

// given is a program's value, or the name of its error.
type given struct {
	Value *string `json:"value,omitempty"`
	Error string  `json:"error,omitempty"`
}

func (g given) String() string {
	if g.Value != nil {
		return *g.Value
	}
	return "throws " + g.Error
}

// TestAsInNode runs small programs over everything that scripts have, here and in node: one value, or one name of an
// error, comes of each. What is known to differ is listed, and has to go on differing.
func TestAsInNode(t *testing.T) {
	files, err := nodePrograms.ReadDir("testdata/node")
	if err != nil {
		t.Fatal(err)
	}
	var programs []string
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".js") {
			text := must(nodePrograms.ReadFile("testdata/node/" + f.Name()))
			programs = append(programs, strings.Split(strings.TrimSpace(string(text)), "\n")...)
		}
	}
	sources := make([]string, len(programs))
	for i, program := range programs {
		sources[i] = encoded + program + "\n})())"
	}
	theirs, ours := askNode(t, sources), askWorkers(t, sources)
	seen := map[string]bool{}
	for i, program := range programs {
		same := ours[i].String() == theirs[i].String()
		why, known := differences[program]
		seen[program] = true
		switch {
		case !same && !known:
			t.Errorf("%s\n  here: %s\n  node: %s", program, ours[i], theirs[i])
		case same && known:
			t.Errorf("%s\n  no longer differs (%s): take it off the list", program, why)
		}
	}
	doc := string(must(os.ReadFile("../../../../docs/07-script-language.md")))
	for program, why := range differences {
		if !seen[program] {
			t.Errorf("%s\n  is known to differ, and is no program", program)
		}
		if !strings.Contains(doc, "| "+why+" |") {
			t.Errorf("the docs do not say that %s", why)
		}
	}
	t.Logf("%d programs, %d known differences", len(programs), len(differences))
}

// askNode gives what each source gives in one process of node.
func askNode(t *testing.T, sources []string) []given {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no node")
	}
	cmd := exec.CommandContext(t.Context(), node, "--input-type=module", "-e", string(must(nodePrograms.ReadFile("testdata/node/run.mjs"))))
	cmd.Env = append(os.Environ(), "TZ=UTC", "LANG=en_US.UTF-8", "LC_ALL=en_US.UTF-8", "NODE_OPTIONS=")
	cmd.Stdin = bytes.NewReader(must(json.Marshal(sources)))
	cmd.Stderr = &lastWords{}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, cmd.Stderr)
	}
	var answer struct {
		Version string
		Results []given
	}
	if err := json.Unmarshal(out, &answer); err != nil || len(answer.Results) != len(sources) {
		t.Fatalf("node says %.200s: %v", out, err)
	}
	t.Logf("node %s", answer.Version)
	if major, _, _ := strings.Cut(strings.TrimPrefix(answer.Version, "v"), "."); must(strconv.Atoi(major)) < 20 {
		if os.Getenv("CI") != "" {
			t.Fatal("node 20 or later is needed")
		}
		t.Skip("node is older than 20")
	}
	return answer.Results
}

// askWorkers gives what each source gives as a script of its own.
func askWorkers(t *testing.T, sources []string) []given {
	t.Helper()
	p := newPool(t, func(c *Config) { c.Limits.Source, c.Limits.CPU, c.Patience = 4<<20, time.Minute, time.Hour })
	results := make([]given, len(sources))
	var all sync.WaitGroup
	next := make(chan int)
	for range 2 {
		all.Go(func() {
			for i := range next {
				results[i] = askWorker(t, p, sources[i])
			}
		})
	}
	for i := range sources {
		next <- i
	}
	close(next)
	all.Wait()
	return results
}

func askWorker(t *testing.T, p *Pool, source string) (g given) {
	got, err := p.Run(t.Context(), "t1", script(source), &fakeHost{})
	var failed *ScriptError
	switch {
	case errors.As(err, &failed) && failed.Name != "":
		return given{Error: failed.Name}
	case errors.As(err, &failed) && strings.HasPrefix(failed.Message, "thrown: "):
		return given{Error: "thrown"}
	case err != nil:
		return given{Error: err.Error()}
	}
	if err := json.Unmarshal(got.Value, &g.Value); err != nil {
		t.Error(err)
	}
	return g
}

// differences are the programs that do not give what they give in node, and the line of docs/07-script-language.md
// that says why.
var differences = map[string]string{
	"return new Function":                                                  "text does not become code at run time",
	"return new Date(0).getYear()":                                         "functions that are kept for old pages (annex B) are not here",
	"return 'x'.anchor('a\"b') + 'x'.bold()":                               "functions that are kept for old pages (annex B) are not here",
	"return [typeof f, (() => { { function f() {} } return typeof f })()]": "a function in a block stays in it, as in strict code (annex B)",
	"return String(new Date(0))":                                           "the time zone's name is UTC, not Coordinated Universal Time",
	"return (1e21).toString(7)":                                            "large numbers have more digits in bases other than 2, 8, 10 and 16",
	"return JSON.parse('1e999')":                                           "a number beyond the largest is refused, not Infinity",
	"return new RegExp('/').source":                                        "a slash is shown by its number; it matches the same",
	"return new RegExp('(?<a>.)(?<a>.)')":                                  "two groups of one name are not refused",
	"return new RegExp('(?<=a)*')":                                         "a repeated assertion is not refused",
	"return /ſ/i.test('s')":                                                "letters that fold to ASCII match without the flag u too",
	`return 'é1'.replace(/(?<=\b)1/, 'x')`:                                 "`\\b` is for all letters in a pattern with look-around",
	"return 1e21 | 0":                                                      "bit operations on numbers beyond 2 ** 63 give 0",
	"return -186 * 0":                                                      "the zero has no sign",
	"return parseInt('-0')":                                                "the zero has no sign",
	"return Number('0x-1')":                                                "a sign after 0x is read",
	"return parseInt('123456789012345680000')":                             "the last digits are off beyond 2 ** 63",
	`return JSON.parse('"\\ud800"') + '\ud800'.toLowerCase() + '\ud800'.trim() + '\ud800'.normalize()`: "half a surrogate pair becomes U+FFFD in JSON.parse, trim, normalize and changes of case",
}
