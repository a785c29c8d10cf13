package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/execwarden/execwarden/tools/sample/warden"
)

// outcomes are the kinds of event that end a call.
var outcomes = []string{"call.finished", "call.failed", "call.refused", "call.cancelled", "call.unknown"}

// recorded is what the ledger has of calls.
type recorded struct {
	calls    map[string]request // by id
	outcomes map[string][]string
}

type request struct{ agent, tool string }

// compare holds what passed the shims against what the ledger has. Each answer with a result is a call that finished; each call that
// ended otherwise was answered with an error; each call has one outcome; and the ledger proves itself.
func (s *site) compare(ctx context.Context) error {
	var faults []error
	results, errored := map[string]int{}, map[string]int{}
	total := 0
	for _, shim := range s.shims {
		shim.mu.Lock()
		for _, name := range shim.open {
			faults = append(faults, fmt.Errorf("%s: a call was not answered", name))
		}
		for name, n := range shim.results {
			results[name] += n
			total += n
		}
		for name, n := range shim.errors {
			errored[name] += n
			total += n
		}
		shim.mu.Unlock()
	}
	have, err := s.record(ctx)
	if err != nil {
		return err
	}
	finished, otherwise := map[string]int{}, map[string]int{}
	of := 0
	for call, r := range have.calls {
		ends := have.outcomes[call]
		switch {
		case len(ends) != 1:
			faults = append(faults, fmt.Errorf("%s, of %s, has the outcomes %v in the ledger", call, r.tool, ends))
		case r.agent != "agt_"+suiteAgent:
			continue
		case ends[0] == "call.finished":
			finished[r.tool]++
		default:
			otherwise[r.tool]++
		}
		of++
	}
	names := maps.Clone(results)
	for _, m := range []map[string]int{errored, finished, otherwise} {
		maps.Copy(names, m)
	}
	never := 0
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if results[name] != finished[name] {
			faults = append(faults, fmt.Errorf("%s: %d results were answered, and %d calls finished in the ledger", name, results[name], finished[name]))
		}
		if errored[name] < otherwise[name] {
			faults = append(faults, fmt.Errorf("%s: %d errors were answered, and %d calls ended otherwise in the ledger", name, errored[name], otherwise[name]))
		}
		never += errored[name] - otherwise[name]
	}
	proof, err := warden.Read[struct {
		Verdict string `json:"verdict"`
		Leaves  int    `json:"leaves"`
	}](ctx, s.warden, "ledger", "verify")
	if err != nil {
		faults = append(faults, err)
	}
	fmt.Fprintf(s.out, "ledger: %d requests for calls of the suite, %d of them recorded as calls with one outcome each, %d refused for breaking the protocol; %d leaves, %s\n", total, of, never, proof.Leaves, proof.Verdict)
	return errors.Join(faults...)
}

// record reads the ledger's calls.
func (s *site) record(ctx context.Context) (*recorded, error) {
	r := &recorded{calls: map[string]request{}, outcomes: map[string][]string{}}
	cmd := s.warden.Command(ctx, "events", "tail", "--no-follow", "--kind", "call.*", "-o", "jsonl")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(out)
	for {
		var e struct {
			Kind  string `json:"kind"`
			Event struct {
				Data struct {
					Call  string `json:"call"`
					Agent string `json:"agent"`
					Tool  string `json:"tool"`
				} `json:"data"`
			} `json:"event"`
		}
		if err = dec.Decode(&e); err != nil {
			break
		}
		switch {
		case e.Kind == "call.requested":
			r.calls[e.Event.Data.Call] = request{e.Event.Data.Agent, e.Event.Data.Tool}
		case slices.Contains(outcomes, e.Kind):
			r.outcomes[e.Event.Data.Call] = append(r.outcomes[e.Event.Data.Call], e.Kind)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return r, errors.Join(err, cmd.Wait())
}
