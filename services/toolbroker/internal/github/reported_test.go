package github_test

import "testing"

// TestReported runs the tests that keep faults out of here which others were told of, by the report.
func TestReported(t *testing.T) {
	for _, r := range []struct {
		report string
		test   func(*testing.T)
	}{
		{"google/go-github#4150 arguments climb into another repository", testNothingLeavesTheRepository},
		{"google/go-github#4150 arguments are refused", testArgumentsThatAreRefused},
		{"google/go-github#4190 redirects are not followed", testRedirectsAreNotFollowed},
		{"google/go-github#4190 nor by an App", testAppRedirects},
		{"golang/oauth2#805 a log elsewhere is fetched without the credential", testJobLogs},
		{"hub4j/github-api#2009 secondary limits", testLimits},
		{"github/github-mcp-server#2037 writes queue", testWritesQueue},
		{"github/github-mcp-server#364 unknown arguments", testUnknownArguments},
		{"github/github-mcp-server#2044 numbers as text", testCoercion},
		{"github/github-mcp-server#533 numbers as text, names as remembered", testForgivingArguments},
		{"github/github-mcp-server#2347 lists that are cut say so", testPages},
		{"github/github-mcp-server#2122 unbounded reads", testAnswersStaySmall},
		{"jferrl/go-githubauth#64 a token that is taken no more", testRevokedToken},
		{"curie#1257 an installation that moved", testInstallationIsFoundAgain},
		{"an empty repository list is every repository", testAppWithoutRepository},
		{"imjohnbo/ok-to-test#3 a merge names the head that was looked at", testMergeNamesItsHead},
	} {
		t.Run(r.report, r.test)
	}
}
