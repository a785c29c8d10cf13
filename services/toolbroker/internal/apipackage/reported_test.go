package apipackage_test

import "testing"

// TestReported runs the tests that keep faults out of here which others were told of, by the report.
func TestReported(t *testing.T) {
	for _, r := range []struct {
		report string
		test   func(*testing.T)
	}{
		{"google/go-github#4150 an argument stays in its segment", testPathArguments},
		{"google/go-github#4150 nor do styles climb", testPathStylesDoNotClimb},
		{"apache/apisix#13959 no argument is a credential or a header", testCredentials},
		{"PrefectHQ/fastmcp#1206 cyclic references", testCyclicReferences},
		{"PrefectHQ/fastmcp#3242 references are not written out", testReferencesAreNotWrittenOut},
		{"wso2/api-manager#5189 large documents, in bounded memory", testLargeDocuments},
		{"PrefectHQ/fastmcp#5060 calls go out to the byte", testCallsOfLargeDocuments},
		{"PrefectHQ/fastmcp#1114 every style of every value", testStyles},
		{"knowsuchagency/mcp2cli#117 what styles cannot carry", testStylesRefuse},
		{"harsha-iiiv/openapi-mcp-generator#4 names of at most 64 characters", testToolNames},
		{"anthropics/claude-code#21136 and stable across imports", testNamesAcrossImports},
		{"Mininglamp-OSS/octo-cli#177 a file is its content, never a path", testFiles},
	} {
		t.Run(r.report, r.test)
	}
}
