package apipackage_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/services/toolbroker/internal/apipackage"
	"github.com/execwarden/execwarden/services/toolbroker/internal/folded"
)

// manifestOf takes every operation of an API.
func manifestOf(name, base string) apipackage.Manifest {
	return apipackage.Manifest{Name: name, Version: "1", BaseURL: base, Auth: apipackage.Auth{Kind: apipackage.AuthBearer},
		Include: []apipackage.Selector{{Operation: "*"}}}
}

var (
	shownName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,45}$`) // 64 less a prefix of 16, two underscores and one to spare
	shownArg  = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
)

// Every operation of the large documents becomes a tool, in bounded memory (fastmcp#1206, openapi-mcp-generator#4).
func testLargeDocuments(t *testing.T) {
	for _, c := range []struct {
		name       string
		spec       spec
		operations int
		heap       uint64
	}{
		{"github", githubSpec, 700, 150},
		{"kubernetes", kubernetesSpec, 800, 150},
		{"stripe", stripeSpec, 590, 150},
		{"docusign", docusignSpec, 400, 150},
		{"asana", asanaSpec, 150, 150},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := c.spec.source(t, manifestOf(c.name, "https://api.example.com"))
			var p *apipackage.Package
			var warnings []apipackage.Warning
			var err error
			peak, kept, took := measured(func() { p, warnings, err = apipackage.Import(t.Context(), src) })
			if err != nil {
				t.Fatal(err)
			}
			raw, err := p.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			tools, err := p.Tools()
			if err != nil {
				t.Fatal(err)
			}
			largest, cut := 0, 0
			seen := map[string]bool{}
			for i, tool := range tools {
				largest = max(largest, len(tool.Schema))
				if !shownName.MatchString(tool.Name) || seen[tool.Name] {
					t.Errorf("tool %q has a bad name, or not its own", tool.Name)
				}
				seen[tool.Name] = true
				if p.Operations[i].View != (apipackage.View{}) {
					cut++
				}
				var schema struct {
					Type       string                     `json:"type"`
					Properties map[string]json.RawMessage `json:"properties"`
				}
				if err := json.Unmarshal(tool.Schema, &schema); err != nil || schema.Type != "object" {
					t.Errorf("the schema of %s is not of an object: %v", tool.Name, err)
				}
				for arg := range schema.Properties {
					if !shownArg.MatchString(arg) {
						t.Errorf("argument %q of %s has a bad name", arg, tool.Name)
					}
				}
			}
			t.Logf("%d tools in %v, peak heap %d MiB, kept %d MiB, stored %d KiB, largest schema %d KiB, %d cut, %d warnings",
				len(tools), took.Round(1e6), peak>>20, kept>>20, len(raw)>>10, largest>>10, cut, len(warnings))
			for i, w := range warnings {
				if i < 5 {
					t.Log(w)
				}
			}
			if len(tools) < c.operations {
				t.Errorf("%d tools, want at least %d", len(tools), c.operations)
			}
			declared(t, c.name, tools)
			if peak>>20 > c.heap {
				t.Errorf("the import took %d MiB, want at most %d", peak>>20, c.heap)
			}
			if largest > 64<<10 {
				t.Errorf("a schema has %d bytes", largest)
			}
		})
	}
}

// One call of each kind that the large APIs have goes out to the byte (fastmcp#5060).
func testCallsOfLargeDocuments(t *testing.T) {
	type sample struct {
		tool, args        string
		line, media, body string
	}
	for _, c := range []struct {
		name    string
		spec    spec
		include []string
		calls   []sample
	}{
		{"github", githubSpec, []string{"repos/get-content", "issues/create", "issues/list-for-repo", "repos/compare-commits"}, []sample{
			{"repos_get-content", `{"owner":"acme","repo":"a b","path":"docs/über/x?.md","ref":"feature/1"}`,
				"GET /repos/acme/a%20b/contents/docs/%C3%BCber/x%3F.md?ref=feature%2F1", "", ""},
			{"issues_create", `{"owner":"acme","repo":"r","title":"<a> & b","labels":["bug","p1"],"milestone":null,"body":"x"}`,
				"POST /repos/acme/r/issues", "application/json", `{"title":"<a> & b","labels":["bug","p1"],"milestone":null,"body":"x"}`},
			{"issues_list-for-repo", `{"owner":"acme","repo":"r","state":"open","per_page":"100","labels":"bug,ui"}`,
				"GET /repos/acme/r/issues?state=open&labels=bug%2Cui&per_page=100", "", ""},
		}},
		{"kubernetes", kubernetesSpec, []string{"createCoreV1NamespacedConfigMap", "patchCoreV1NamespacedConfigMap", "listCoreV1NamespacedPod"}, []sample{
			{"createCoreV1NamespacedConfigMap", `{"namespace":"prod","dryRun":"All","apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`,
				"POST /api/v1/namespaces/prod/configmaps?dryRun=All", "application/json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`},
			{"patchCoreV1NamespacedConfigMap", `{"namespace":"prod","name":"c","body":{"data":{"a":null}}}`,
				"PATCH /api/v1/namespaces/prod/configmaps/c", "application/json", `{"data":{"a":null}}`},
			{"listCoreV1NamespacedPod", `{"namespace":"prod","limit":2,"labelSelector":"app in (a,b)","watch":false}`,
				"GET /api/v1/namespaces/prod/pods?labelSelector=app%20in%20%28a%2Cb%29&limit=2&watch=false", "", ""},
		}},
		{"stripe", stripeSpec, []string{"PostSubscriptions", "GetCharges", "GetAccount"}, []sample{
			{"PostSubscriptions", `{"customer":"cus_1","items":[{"price":"price_1","quantity":2},{"price":"p&2"}],"metadata":{"k":"a b"},"expand":["latest_invoice"]}`,
				"POST /v1/subscriptions", "application/x-www-form-urlencoded",
				"customer=cus_1&items%5B0%5D%5Bprice%5D=price_1&items%5B0%5D%5Bquantity%5D=2&items%5B1%5D%5Bprice%5D=p%262&metadata%5Bk%5D=a+b&expand%5B0%5D=latest_invoice"},
			{"GetCharges", `{"created":{"gte":1700000000,"lt":1800000000},"limit":3,"expand":["data.customer","data.invoice"]}`,
				"GET /v1/charges?created%5Bgte%5D=1700000000&created%5Blt%5D=1800000000&expand%5B0%5D=data.customer&expand%5B1%5D=data.invoice&limit=3", "", ""},
			{"GetAccount", `{}`, "GET /v1/account", "", ""},
		}},
		{"docusign", docusignSpec, []string{"Envelopes_PostEnvelopes", "Envelopes_GetEnvelope"}, []sample{
			{"Envelopes_PostEnvelopes", `{"accountId":"a/1","emailSubject":"Hi","status":"sent","recipients":{"signers":[{"email":"a@example.com","recipientId":"1"}]}}`,
				"POST /v2.1/accounts/a%2F1/envelopes", "application/json",
				`{"emailSubject":"Hi","status":"sent","recipients":{"signers":[{"email":"a@example.com","recipientId":"1"}]}}`},
		}},
		{"asana", asanaSpec, []string{"createTask", "getTasks"}, []sample{
			{"createTask", `{"data":{"name":"x","projects":["1"]}}`, "POST /tasks", "application/json", `{"data":{"name":"x","projects":["1"]}}`},
			{"getTasks", `{"project":"1","opt_fields":["name","due_on"],"limit":10}`, "GET /tasks?limit=10&project=1&opt_fields=name,due_on", "", ""},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStub(t)
			m := manifestOf(c.name, s.URL)
			m.Include = nil
			for _, id := range c.include {
				m.Include = append(m.Include, apipackage.Selector{Operation: id})
			}
			p, _, err := apipackage.Import(t.Context(), c.spec.source(t, m))
			if err != nil {
				t.Fatal(err)
			}
			api := open(t, s, kept(t, p))
			for _, want := range c.calls {
				mustCall(t, api, want.tool, want.args)
				got := s.last(t)
				if got.line != want.line || got.body != want.body || got.header.Get("Content-Type") != want.media || got.header.Get("Authorization") != "Bearer "+canary {
					t.Errorf("%s went out as\n%s\n%s %s\nwant\n%s\n%s %s", want.tool, got.line, got.header.Get("Content-Type"), got.body, want.line, want.media, want.body)
				}
			}
		})
	}
}

// The schema of every tool can be checked against: a call without arguments is made, or says what is missing.
func TestEverySchemaOfLargeDocuments(t *testing.T) {
	for name, spec := range map[string]spec{"github": githubSpec, "kubernetes": kubernetesSpec, "stripe": stripeSpec, "docusign": docusignSpec, "asana": asanaSpec} {
		t.Run(name, func(t *testing.T) {
			p, _, err := apipackage.Import(t.Context(), spec.source(t, manifestOf(name, "https://api.example.com/base")))
			if err != nil {
				t.Fatal(err)
			}
			api, err := apipackage.New(p, secret, newRecorder())
			if err != nil {
				t.Fatal(err)
			}
			for i := range p.Operations {
				if _, err := call(t, api, p.Operations[i].Tool, "{}"); err != nil && !strings.Contains(err.Error(), " is missing") {
					t.Errorf("%s: %v", p.Operations[i].Tool, err)
				}
			}
		})
	}
}

func TestSearch(t *testing.T) {
	indexes := map[spec]*folded.Index{}
	for query, c := range map[string]struct {
		spec spec
		want string
	}{
		"create an issue":           {githubSpec, "issues_create"},
		"list pull request reviews": {githubSpec, "pulls_list-reviews"},
		"cancel subscription":       {stripeSpec, "DeleteSubscriptionsSubscriptionExposedId"},
		"create a customer":         {stripeSpec, "PostCustomers"},
		"delete namespaced pod":     {kubernetesSpec, "deleteCoreV1NamespacedPod"},
		"create envelope":           {docusignSpec, "Envelopes_PostEnvelopes"},
		"tasks in a project":        {asanaSpec, "getTasksForProject"},
	} {
		x := indexes[c.spec]
		if x == nil {
			p, _, err := apipackage.Import(t.Context(), c.spec.source(t, manifestOf("x", "https://api.example.com")))
			if err != nil {
				t.Fatal(err)
			}
			tools, err := p.Tools()
			if err != nil {
				t.Fatal(err)
			}
			x = folded.NewIndex(tools)
			indexes[c.spec] = x
		}
		hits := x.Search(query, 5, func(string) bool { return true })
		var names []string
		for _, h := range hits {
			names = append(names, h.Tool)
		}
		if !slices.Contains(names, c.want) {
			t.Errorf("%q finds %v, without %s", query, names, c.want)
		}
		if again := x.Search(query, 5, func(string) bool { return true }); !slices.Equal(again, hits) {
			t.Errorf("%q finds other operations the second time", query)
		}
	}
}
