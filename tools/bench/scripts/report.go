package scripts

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// Engine is one way to run scripts.
type Engine string

// The engines.
const (
	House    Engine = "execwarden"
	NodeVM   Engine = "node vm, forked"
	Isolated Engine = "isolated-vm"
)

var engines = []Engine{House, NodeVM, Isolated}

// row is one thing that is measured. More is better where it is a rate.
type row struct {
	name, unit string
	rate       bool
}

var rows = []row{
	{"one more script in a worker that has run", "ms", false},
	{"first script in a worker that is ready", "ms", false},
	{"the same with one tool call", "ms", false},
	{"tool call from a script", "ms", false},
	{"1000 objects: JSON, filter, sort", "ms", false},
	{"a worker per script, 1 caller", "/s", true},
	{"a worker per script, 16 callers", "/s", true},
	{"a worker per script, 64 callers", "/s", true},
	{"start a worker and end it", "/s", true},
	{"resident memory of an idle worker", "MiB", false},
}

// Report is what was measured: of each row by its name, each engine's value. A value that is missing was not measured.
type Report struct {
	Load    string                        `json:"load_average"`
	Tier    string                        `json:"tier"`
	Values  map[string]map[Engine]float64 `json:"values"`
	Skipped map[Engine]string             `json:"skipped,omitempty"` // why an engine has no values
	// Neighbour is the time of an innocent tenant's script in ms, in pairs: alone, and while 16 hostile ones of another run.
	Neighbour []Neighbour `json:"neighbour"`
}

// Neighbour is an innocent tenant's scripts in one situation.
type Neighbour struct {
	Situation string  `json:"situation"`
	Scripts   int     `json:"scripts"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
}

func (r *Report) set(e Engine, name string, v float64) {
	if r.Values[name] == nil {
		r.Values[name] = map[Engine]float64{}
	}
	r.Values[name][e] = v
}

// WriteTable writes the report for people. A ratio over 1 is in the house's favour.
func (r Report) WriteTable(out io.Writer) error {
	fmt.Fprintf(out, "load average at the start %s; workers are %s\n\n", r.Load, r.Tier)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\t%s\t%s\tratio\t%s\tratio\t\n", House, NodeVM, Isolated)
	for _, row := range rows {
		of := r.Values[row.name]
		fmt.Fprintf(w, "%s, %s\t%s\t%s\t%s\t%s\t%s\t\n", row.name, row.unit, number(of, House), number(of, NodeVM), ratio(row, of, NodeVM), number(of, Isolated), ratio(row, of, Isolated))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprint(out, "\nan innocent tenant's script with one tool call\n\n")
	fmt.Fprintln(w, "\tscripts\tp50 ms\tp99 ms\tp99 / alone\t")
	for i, n := range r.Neighbour {
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%.2f\t\n", n.Situation, n.Scripts, n.P50, n.P99, n.P99/r.Neighbour[i&^1].P99)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, e := range engines {
		if why := r.Skipped[e]; why != "" {
			fmt.Fprintf(out, "\n%s was skipped: %s\n", e, why)
		}
	}
	return nil
}

func number(of map[Engine]float64, e Engine) string {
	v, ok := of[e]
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

func ratio(r row, of map[Engine]float64, e Engine) string {
	ours, theirs := of[House], of[e]
	if ours == 0 || theirs == 0 {
		return "-"
	}
	if r.rate {
		return fmt.Sprintf("%.2f", ours/theirs)
	}
	return fmt.Sprintf("%.2f", theirs/ours)
}

// loadAverage is the machine's, "unknown" where it does not say.
func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	f := strings.Fields(string(raw))
	return strings.Join(f[:min(3, len(f))], " ")
}
