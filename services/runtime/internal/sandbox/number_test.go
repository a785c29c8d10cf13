package sandbox

import (
	"errors"
	"testing"
)

// A worker leaves out the numbers of what it refused: the host hears of each, once and before what comes next, and ends
// the script if it likes.
func TestNumbersThatAreLeftOut(t *testing.T) {
	p := newFakePool(t)
	host := &fakeHost{}
	if _, err := p.Run(t.Context(), "t1", script("rising seq"), host); err != nil {
		t.Fatal(err)
	}
	if n := len(host.refused); n != lastSeq-3 || host.refused[0] != 1 || host.refused[1] != 2 || host.refused[2] != 5 || host.refused[n-1] != lastSeq-1 {
		t.Errorf("refused are %v", host.refused)
	}
	if len(host.calls) != 3 {
		t.Errorf("the host was asked for %v", host.calls)
	}
	why := errors.New("not there")
	host = &fakeHost{no: func(seq int) error {
		if seq == 5 {
			return Abort(why)
		}
		return nil
	}}
	if _, err := p.Run(t.Context(), "t1", script("rising seq"), host); !errors.Is(err, why) {
		t.Error(err)
	}
	for _, c := range host.calls {
		if c.Seq > 4 {
			t.Errorf("the host was asked for %+v", c)
		}
	}
}

// Every request has the number of its place, whether the worker refuses it or not; beyond its limit it has none.
func TestEveryRequestHasItsNumber(t *testing.T) {
	p := newPool(t)
	for name, tc := range map[string]struct {
		js     string
		fetch  bool
		limits Limits
		seq    int // of the call after it; 0: it is refused too
	}{
		"no such tool":          {`tools.a.none({})`, true, Limits{}, 2},
		"arguments too large":   {`tools.a.b({x: "x".repeat(300000)})`, true, Limits{}, 2},
		"no fetch":              {`fetch("https://a.test/")`, false, Limits{}, 2},
		"a body too large":      {`fetch("https://a.test/", {method: "POST", body: "x".repeat(2 << 20)})`, true, Limits{}, 2},
		"headers too large":     {`fetch("https://a.test/", {headers: {a: "x".repeat(100000)}})`, true, Limits{}, 2},
		"a search too long":     {`tools.search("x".repeat(2000))`, true, Limits{}, 2},
		"an artifact too large": {`artifacts.put("x", "x".repeat(2 << 20))`, true, Limits{}, 2},
		"too many fetches":      {`[1, 2, 3].map(() => fetch("https://a.test/"))`, false, Limits{Fetches: 2}, 3},
		"too many searches":     {`[1, 2, 3].map(() => tools.search("x".repeat(2000)))`, true, Limits{Searches: 2}, 3},
		"too many of no tool":   {`[1, 2, 3].map(() => tools.a.none({}))`, true, Limits{Calls: 3}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := script(`await Promise.allSettled([` + tc.js + `].flat()); try { await tools.a.b({}) } catch (e) { return e.code } return "called"`)
			s.Fetch, s.Limits = tc.fetch, tc.limits
			host := &fakeHost{}
			got, err := p.Run(t.Context(), "t1", s, host)
			if err != nil {
				t.Fatal(err)
			}
			if tc.seq == 0 {
				if string(got.Value) != `"too_many_calls"` || len(host.calls) != 0 {
					t.Errorf("%s, called %v", got.Value, host.calls)
				}
				return
			}
			if string(got.Value) != `"called"` || len(host.calls) != 1 || host.calls[0].Seq != tc.seq || len(host.refused) != tc.seq-1 {
				t.Errorf("%s, called %v, refused %v", got.Value, host.calls, host.refused)
			}
		})
	}
}
