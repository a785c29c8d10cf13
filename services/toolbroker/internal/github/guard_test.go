package github

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestReportedAlone(t *testing.T) {
	t.Run("google/go-github#4150 the guard by itself", testGuardAlone)
}

// The guard holds by itself: it knows nothing of how a request was built.
func testGuardAlone(t *testing.T) {
	base, err := url.Parse("https://ghe.example/api/v3/")
	if err != nil {
		t.Fatal(err)
	}
	passed := false
	g := &guarded{base: base, next: roundTrip(func(*http.Request) (*http.Response, error) {
		passed = true
		return nil, nil
	})}
	try := func(t *testing.T, s *scope, method, target string, read bool) error {
		t.Helper()
		ctx := t.Context()
		if read {
			ctx = context.WithValue(ctx, readKey{}, true)
		}
		r, err := http.NewRequestWithContext(within(ctx, s), method, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		passed = false
		_, err = g.RoundTrip(r)
		return err
	}
	const api = "https://ghe.example/api/v3/"
	outside := []string{
		"https://evil.example/api/v3/repos/acme/shop/issues/7", "http://ghe.example/api/v3/repos/acme/shop/issues/7", "https://ghe.example:444/api/v3/repos/acme/shop/issues/7",
		"https://x@ghe.example/api/v3/repos/acme/shop/issues/7", "https://ghe.example/repos/acme/shop/issues/7", "https://ghe.example/graphql",
		api + "repos/evil/secret/issues/7", api + "repos/acme/shopping/issues/7", api + "repos/acme/shop/../../evil/secret/issues/7", api + "repos/acme/shop/%2e%2e/%2e%2e/evil/secret",
		api + "repos/acme/shop/contents/..%2f..%2f..%2fevil", api + "repos/acme/shop/contents/%252e%252e%252f", api + `repos/acme/shop/contents/..%5c..%5cevil`, api + "repos/acme/shop/contents/%252525",
		api + "repos/acme/shop/actions/secrets", api + "repos/acme/shop/issues/7/lock", api + "repos/acme/shop/issues/x", api + "repos/acme/shop/hooks", api + "repos/acme/shop/collaborators/evil", api + "repos/acme/shop/keys",
		api + "orgs/acme", api + "users/x", api + "user/repos", api + "search/issues?q=x", api + "search/issues?q=repo:evil/secret+is:issue", api + "search/issues?q=repo:acme/shop2+is:issue+x",
		api + "search/code?q=repo:acme/shop&q=repo:evil/secret", api + "search/repositories?q=x", api + "search/commits?q=repo:acme/shop", api, "https://ghe.example/api/graphql/../v3/user/repos",
	}
	for _, one := range tools {
		s := one.scope(arguments{Owner: "acme", Repo: "shop"})
		for _, target := range outside {
			for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"} {
				if err := try(t, s, method, target, false); problem.CodeOf(err) != problem.Denied || passed {
					t.Errorf("%s may %s %s: %v", one.name, method, target, err)
				}
			}
		}
		for _, declared := range one.routes {
			r := readRoute(declared)
			path := strings.NewReplacer("{repo}", "repos/acme/shop", "{number}", "7", "{path...}", "a/b", "{ref...}", "main", "{branch...}", "topic/x", "{ref}", "topic%2Fx", "{sha}", "abc", "{id}", "ci.yml").
				Replace(strings.Join(r.segments, "/"))
			target := api + path
			if path == "graphql" {
				target = "https://ghe.example/api/graphql"
			}
			if r.query != "" {
				target += "?q=" + url.QueryEscape(strings.ReplaceAll(r.query, "{repo}", "acme/shop")+" words")
			}
			if err := try(t, s, r.method, target, r.asks); err != nil || !passed {
				t.Errorf("%s may not %s: %v", one.name, declared, err)
			}
			if r.asks {
				if err := try(t, s, r.method, target, false); err == nil {
					t.Errorf("%s may write by %s", one.name, declared)
				}
			}
			if one.effect == "pure" && r.method != "GET" && !r.asks {
				t.Errorf("%s is pure and may %s", one.name, declared)
			}
		}
	}
	r, err := http.NewRequest("GET", api+"repos/acme/shop/issues/7", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.RoundTrip(r); problem.CodeOf(err) != problem.Denied {
		t.Errorf("outside of a call: %v", err)
	}
}

func TestGraphQLPath(t *testing.T) {
	for base, want := range map[string]string{"https://api.github.com/": "/graphql", "https://ghe.example/api/v3/": "/api/graphql", "http://127.0.0.1:1/": "/graphql"} {
		u, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		if got := graphqlPath(u); got != want {
			t.Errorf("%s: %s", base, got)
		}
	}
}

// Names of branches, by git's own rules.
func TestRefs(t *testing.T) {
	for _, ok := range []string{"main", "topic/x", "v1.2.3", "refs/heads/main", "refs/pull/7/head", "feature/ä", "a-b_c", "x@y", "HEAD", "dependabot/npm_and_yarn/@types/node-20"} {
		if why := badRef(ok); why != "" {
			t.Errorf("%q %s", ok, why)
		}
	}
	for _, bad := range []string{"", "@", "-x", "a..b", ".a", "a/.b", "a.", "a.lock", "a.lock/b", "a b", "a~1", "a^", "a:b", "a?", "a*", "a[", `a\b`, "a@{1}", "/a", "a/", "a//b", "a\x00", "a\n", "a\x7f", "a#b", "a%2e", "\xff"} {
		if badRef(bad) == "" {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestQueries(t *testing.T) {
	for _, ok := range []string{"crash", `"exact words"`, "label:bug is:open author:octocat", `"repo: in words"`, "NOT draft", "ordinary android", "path:src extension:go"} {
		if why := badQuery(ok); why != "" {
			t.Errorf("%q %s", ok, why)
		}
	}
	for _, bad := range []string{"", " ", "repo:a/b", "x -repo:a/b", "x REPO:a/b", "org:a", "user:@me", "x,repo:a/b", "x\u00a0repo:a/b", `"x`, `"a" "`, `a \"b`, "a OR b", "a or b", "a AND b", "(a)", "a|b", "repo :a/b", "owner:a", "enterprise:a"} {
		if badQuery(bad) == "" {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestPaths(t *testing.T) {
	for _, ok := range []string{"", "/", "a", "a/b.txt", "/a/", "app/[id]/page.tsx", "c#/x?.txt", "a..b", "-x", ".github/workflows/ci.yml", "ä b"} {
		if why := badPath(ok); why != "" {
			t.Errorf("%q %s", ok, why)
		}
	}
	for _, bad := range []string{"..", ".", "a/../b", "../a", "a//b", "//a", ".git/config", "a/.GIT/x", `a\b`, "a%2eb", "a\x00", "a\nb", "\xff"} {
		if badPath(bad) == "" {
			t.Errorf("%q is taken", bad)
		}
	}
}

// No token is asked for without a repository and permissions: GitHub takes an empty list for all.
func TestNoTokenForEverything(t *testing.T) {
	base, err := url.Parse("https://api.github.com/")
	if err != nil {
		t.Fatal(err)
	}
	a := &app{base: base, tokens: map[tokenKey]minted{}, installation: map[string]int64{}, fixed: 1, next: roundTrip(func(r *http.Request) (*http.Response, error) {
		t.Errorf("asked %s", r.URL)
		return nil, problem.New(problem.Internal, "no")
	})}
	for _, s := range []*scope{{}, {repo: "acme/shop"}, {needs: permissions{"issues": "read"}}, {repo: "acme/", needs: permissions{"issues": "read"}}, {repo: "/shop", needs: permissions{"issues": "read"}}} {
		if _, err := a.token(t.Context(), s, ""); err == nil {
			t.Errorf("%q %v: there is a token", s.repo, s.needs)
		}
		_, name, _ := strings.Cut(s.repo, "/")
		if name == "" || len(s.needs) == 0 {
			if _, _, err := a.request(t.Context(), 1, name, s.needs); problem.CodeOf(err) != problem.Internal {
				t.Errorf("%q %v: %v", s.repo, s.needs, err)
			}
		}
	}
}
