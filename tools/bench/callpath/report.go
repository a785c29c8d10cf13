package callpath

import (
	"slices"
	"strconv"
	"time"
)

// Name is the name of a way.
type Name string

// The ways; the package's comment says what they are.
const (
	Bare   Name = "bare"
	Exec   Name = "exec"
	Pure   Name = "pure"
	Keyed  Name = "keyed"
	Direct Name = "direct"
)

// Row is one way under one setting.
type Row struct {
	Setting
	Callers int     `json:"callers"`
	Way     Name    `json:"way"`
	Calls   int     `json:"calls"`
	P50     Micros  `json:"p50_us"`
	P99     Micros  `json:"p99_us"`
	Rate    float64 `json:"calls_per_second"` // median of the rounds

	// How much slower than bare it is, and than direct, in the median round: of latency, and of calls per second.
	BareP50    float64 `json:"p50_over_bare,omitempty"`
	BareRate   float64 `json:"bare_rate_over_rate,omitempty"`
	DirectP50  Micros  `json:"p50_minus_direct_us,omitempty"`
	DirectRate float64 `json:"direct_rate_over_rate,omitempty"`
}

// RevokeRow says how long it took from the moment that a revocation was asked for until the outcome of the last call
// in flight under the grant was stored and read.
type RevokeRow struct {
	Setting
	InFlight int    `json:"in_flight"`
	Revokes  int    `json:"revokes"`
	P50      Micros `json:"p50_us"`
	P99      Micros `json:"p99_us"`
}

// Report is everything that was measured.
type Report struct {
	Paths   []Row       `json:"paths"`
	Revokes []RevokeRow `json:"revokes,omitempty"`
}

// Micros is a duration that JSON has in microseconds.
type Micros time.Duration

// MarshalJSON implements json.Marshaler.
func (m Micros) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Duration(m).Microseconds(), 10), nil
}

// rows makes the rows of one setting and number of callers from the turns of each way, which are in the same order.
func rows(s Setting, callers int, ways []way, turns [][]turn) (out []Row) {
	of := func(n Name) []turn {
		return turns[slices.IndexFunc(ways, func(w way) bool { return w.name == n })]
	}
	bare, direct := of(Bare), of(Direct)
	for i, w := range ways {
		var all []time.Duration
		var rates, bareP50, bareRate, directP50, directRate []float64
		for round, t := range turns[i] {
			all = append(all, t.latencies...)
			rates = append(rates, t.rate)
			bareP50 = append(bareP50, float64(t.p50())/float64(bare[round].p50()))
			bareRate = append(bareRate, bare[round].rate/t.rate)
			directP50 = append(directP50, float64(t.p50()-direct[round].p50()))
			directRate = append(directRate, direct[round].rate/t.rate)
		}
		slices.Sort(all)
		r := Row{Setting: s, Callers: callers, Way: w.name, Calls: len(all), Rate: median(rates),
			P50: Micros(quantile(all, 0.50)), P99: Micros(quantile(all, 0.99))}
		if w.name == Exec || w.name == Pure || w.name == Keyed {
			r.BareP50, r.BareRate = median(bareP50), median(bareRate)
		}
		if w.name == Pure || w.name == Keyed {
			r.DirectP50, r.DirectRate = Micros(median(directP50)), median(directRate)
		}
		out = append(out, r)
	}
	return out
}
