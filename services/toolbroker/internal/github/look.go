package github

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/libs/problem"
)

// How far back, and through how many pages, an effect is looked for. A call is at most a permit's life old.
const (
	lookBack = 24 * time.Hour
	maxPages = 20
)

// look goes through pages for what a test finds. Pages without end are not taken for a list without the effect.
func look[T any](ctx context.Context, list func(github.ListOptions) ([]T, *github.Response, error), test func(T) (any, bool)) (any, bool, error) {
	opts := github.ListOptions{PerPage: 100}
	for range maxPages {
		items, resp, err := list(opts)
		if err != nil {
			return nil, false, err
		}
		for _, one := range items {
			if answer, found := test(one); found {
				return answer, true, nil
			}
		}
		if resp.NextPage == 0 {
			return nil, false, ctx.Err()
		}
		opts.Page = resp.NextPage
	}
	return nil, false, problem.New(problem.Unknown, "there is too much to look through for the effect")
}

// sameWords compares two lists as GitHub does: in any order, without case.
func sameWords(a, b []string) bool { return slices.Equal(folded(a), folded(b)) }

func folded(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = strings.ToLower(w)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
