package github

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// A pending review's comments and the state of a thread are not in GitHub's REST API. The documents are constants; what
// is in them beyond the repository is only what was looked up in it.

// graphqlPath is where the GraphQL API of a REST API is: beside it on github.com, above its version elsewhere.
func graphqlPath(base *url.URL) string {
	if root, ok := strings.CutSuffix(base.EscapedPath(), "/v3/"); ok {
		return root + "/graphql"
	}
	return base.EscapedPath() + "graphql"
}

type graphqlError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// ask makes a query, which has no effect.
func ask[T any](ctx context.Context, s session, document string, variables any) (T, error) {
	return graphql[T](context.WithValue(ctx, readKey{}, true), s, document, variables)
}

// graphql runs a document. What GitHub refuses in an answer of status 200 had no effect.
func graphql[T any](ctx context.Context, s session, document string, variables any) (T, error) {
	u := *s.BaseURL
	u.Path, u.RawPath = graphqlPath(s.BaseURL), ""
	type question struct {
		Query     string `json:"query"`
		Variables any    `json:"variables"`
	}
	type answer struct {
		Data   *T             `json:"data"`
		Errors []graphqlError `json:"errors"`
	}
	got, _, err := send[answer](ctx, s, http.MethodPost, u.String(), question{document, variables})
	var none T
	switch {
	case err != nil:
		return none, err
	case len(got.Errors) > 0 && got.Errors[0].Type == "RATE_LIMITED":
		return none, &limited{true, time.Minute}
	case len(got.Errors) > 0:
		return none, &refusal{Text: "GitHub refused: " + clip(got.Errors[0].Message, 500)}
	case got.Data == nil:
		return none, problem.New(problem.Upstream, "GitHub's answer has no data")
	}
	return *got.Data, nil
}
