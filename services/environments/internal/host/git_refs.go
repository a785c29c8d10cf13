package host

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// Bounds of looking a branch up.
const (
	maxAdvert  = 4 << 20 // bytes of what a git server says of its refs
	lookWithin = 45 * time.Second
)

// advert is what a git server says of its refs (gitprotocol-http, "Reference Discovery"), as far as it came.
type advert struct{ text []byte }

func (a *advert) add(data []byte) {
	a.text = append(a.text, data[:min(len(data), maxAdvert+1-len(a.text))]...)
}

// at gives what a ref is, "" where there is none such; ok says that this can be told.
func (a *advert) at(ref string) (commit string, ok bool) {
	flushes := 0
	for rest := a.text; len(rest) >= 4 && len(a.text) <= maxAdvert; {
		n, err := strconv.ParseUint(string(rest[:4]), 16, 16)
		if err != nil || n > 0 && n < 4 || int(n) > len(rest) {
			return "", false
		}
		if n == 0 { // the first is behind the service's name
			if flushes++; flushes == 2 {
				return commit, true
			}
			rest = rest[4:]
			continue
		}
		line, _, _ := strings.Cut(string(rest[4:n]), "\x00") // what the server can do follows
		if id, name, both := strings.Cut(strings.TrimSuffix(line, "\n"), " "); both && name == ref {
			commit = id
		}
		rest = rest[n:]
	}
	return "", false
}

// look asks the git server for its refs with what was lent for the push.
func (b *borrowing) look(ctx context.Context) (a advert, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	q := b.open
	q.Refs, q.Service = true, b.does
	lent, err := b.broker.Open(ctx, q)
	if err != nil {
		return a, err
	}
	for {
		data, _, last, err := lent.Get(ctx)
		if err != nil || len(a.text) > maxAdvert {
			lent.Close()
			return a, err
		}
		if a.add(data); last {
			return a, nil
		}
	}
}

// lookUp finds out what became of a push that was cut off. The branch is at the commit: it was made, by whomever. The branch is as it
// was, and the git server was never sent all of the push: it had no effect, and has none any more. Anything else is unknown: who was
// sent all of it may be about to make it.
func (g *gitCall) lookUp(ctx context.Context, b *borrowing, branch, commit string) error {
	ref := "refs/heads/" + branch
	before, told := b.refs.at(ref)
	found, err := b.look(ctx)
	now, known := found.at(ref)
	switch {
	case err == nil && known && now == commit:
		g.out.Pushed, g.out.Code, g.out.Reason, g.ended = "updated", 0, "", ""
		if told && before == "" {
			g.out.Pushed = "new"
		}
		g.out.Problem = "git was cut off while it pushed; the branch was looked up, and is at the commit"
		return nil
	case err == nil && known && told && now == before && !b.whole:
		g.out.Problem = "git was cut off before all of the push was sent; the branch was looked up, and is as it was"
		return nil
	}
	why := "the branch cannot be looked up"
	switch {
	case err != nil:
		why += ": " + problem.DetailOf(err).Message
	case known:
		why = fmt.Sprintf("the branch was looked up, and is at %.64q", now)
	}
	return problem.New(problem.Unknown, "unknown_outcome: git was cut off while it pushed: %s; %s", g.out.Stderr, why)
}
