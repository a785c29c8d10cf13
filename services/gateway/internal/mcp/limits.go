package mcp

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// maxRates is how many agents' rates are remembered. Forgetting one lets its agent begin with a whole burst again.
const maxRates = 10_000

// tooFast is a call above the agent's rate.
type tooFast struct {
	why   *problem.Error
	after time.Duration // until one more may be made
}

func (t *tooFast) Error() string { return t.why.Error() }

// Unwrap lets the problem be found.
func (t *tooFast) Unwrap() error { return t.why }

// enter counts a call of an agent, or what it asks the broker otherwise. Problems: busy.
func (s *sessions) enter(who auth.Agent, l Limits, now time.Time) (leave func(), err error) {
	return s.bounded(s.atOnce, s.rates, who, l, 1, "calls and lists under way", "calls and lists", now)
}

// bounded counts one thing against how many of open an agent may have at once, until it is left, and against how many of what it may
// make per second, which is so many for each call.
func (s *sessions) bounded(of map[agentKey]int, rates map[agentKey]*rate.Limiter, who auth.Agent, l Limits, perCall int, open, what string, now time.Time) (leave func(), err error) {
	leave, err = s.count(of, who, l.AtOnce, open)
	if err != nil {
		return nil, err
	}
	if err := s.pace(rates, who, perCall*l.Rate, perCall*l.Burst, what, now); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// pace counts one of what against the agent's rate of those, per second; 0: as many as it likes.
func (s *sessions) pace(of map[agentKey]*rate.Limiter, who auth.Agent, most, burst int, what string, now time.Time) error {
	key := agentKey{who.Tenant, who.Agent}
	s.mu.Lock()
	defer s.mu.Unlock()
	rates := of[key]
	if rates == nil && most > 0 {
		if len(of) >= maxRates {
			clear(of)
		}
		rates = rate.NewLimiter(rate.Limit(most), burst)
		of[key] = rates
	}
	if rates != nil && !rates.AllowN(now, 1) {
		after := max(time.Duration((1-rates.TokensAt(now))/float64(most)*float64(time.Second)).Round(time.Millisecond), time.Millisecond)
		return &tooFast{problem.New(problem.Busy, "the agent makes more than %d %s per second at this instance; try again in %s", most, what, after), after}
	}
	return nil
}

// listen counts a stream of news.
func (s *sessions) listen(who auth.Agent, most int) (leave func(), err error) {
	return s.count(s.streams, who, most, "streams open")
}

// looksPerCall is how many requests about tasks an agent may make for every call that it may: clients look at each task again and
// again. Each reads what was recorded since the task began, so they are not for nothing.
const looksPerCall = 4

// poll counts a request about a task. It does not count as a call: a client asks after many, and a call is not refused for that.
// Problems: busy.
func (s *sessions) poll(who auth.Agent, l Limits, now time.Time) (leave func(), err error) {
	return s.bounded(s.polls, s.looks, who, l, looksPerCall, "requests about tasks under way", "requests about tasks", now)
}

// await counts a request that waits for a task's end, which takes as long as a person does. Whoever waits for many can still ask
// about one, and cancel it. Problems: busy.
func (s *sessions) await(who auth.Agent, l Limits, now time.Time) (leave func(), err error) {
	return s.bounded(s.waits, s.looks, who, l, looksPerCall, "tasks waited for", "requests about tasks", now)
}

func (s *sessions) count(of map[agentKey]int, who auth.Agent, most int, what string) (leave func(), err error) {
	key := agentKey{who.Tenant, who.Agent}
	s.mu.Lock()
	defer s.mu.Unlock()
	if of[key] >= most {
		return nil, problem.New(problem.Busy, "the agent has %d %s at this instance, which is the most; try again when some have ended", most, what)
	}
	of[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if of[key]--; of[key] == 0 {
			delete(of, key)
		}
	}, nil
}
