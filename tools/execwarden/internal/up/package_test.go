package up

import (
	"archive/zip"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/tools/sample"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

const petDocument = `{"openapi":"3.1.0","info":{"title":"pets","version":"1"},"servers":[{"url":"https://elsewhere.example"}],"paths":{
"/pets/{id}":{"get":{"operationId":"get pet","parameters":[{"name":"id","in":"path","required":true,"schema":{"type":"string"}},{"name":"tags","in":"query","schema":{"type":"array","items":{"type":"string"}}}],"responses":{"200":{"description":"a pet"}}}},
"/pets":{"post":{"operationId":"add pet","requestBody":{"content":{"application/json":{"schema":{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}}}},"responses":{"201":{"description":"made"}}}}}}`

// An API package, end to end: imported from an archive, granted operation by operation, called by a run with the
// credential that the run never sees.
func TestAPIPackage(t *testing.T) {
	var got []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, r.Method+" "+r.RequestURI+" "+r.Header.Get("X-Api-Key")+" "+string(body))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"name":"Rex"}`)
	}))
	defer api.Close()
	manifest := "name: pets\nversion: 1.0.0\nbase_url: " + api.URL + "\nauth: {kind: header, name: X-Api-Key}\ninclude: [{operation: '*'}]\n"
	w := newWorld(t)
	model := sample.NewModel(scriptmodel.Script{Model: "scripted-pets", Turns: []scriptmodel.Turn{
		{Calls: []scriptmodel.Call{
			{Tool: "pets__get_pet", Args: map[string]string{"id": "a/b"}, Values: map[string]string{"tags": `["x","y z"]`}},
			{Tool: "pets__add_pet", Args: map[string]string{"name": "Rex"}}}},
		{Text: `{{.Result "pets__get_pet"}} {{.Result "pets__add_pet"}}`}}})
	if err := model.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	def := connection.Defined{Connection: "con_pets", Type: connection.API, URL: api.URL, Private: []string{hostport(api.URL)}, Trusted: true}
	for _, err := range []error{
		w.PutConnection(t.Context(), def, "the-pet-key"),
		w.PutAgent(t.Context(), agent.Defined{Agent: "agt_keeper", Hosting: agent.Hosted, Body: agent.Body{Instructions: "Keep pets."},
			Model: agent.Model{Protocol: "openai", URL: model.URL(), Name: "scripted-pets", Private: []string{hostport(model.URL())}}}, ""),
		w.PutGrant(t.Context(), grant.Created{Grant: "grt_read-pets", Agent: "agt_keeper", Approval: grant.Never, Selector: grant.Selector{Tool: "pets.*", Effects: []connection.Effect{connection.Pure}}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, bad := range map[string][]byte{"no archive": []byte("PK"), "no manifest": archive(t, map[string]string{"api.json": petDocument}),
		"no document": archive(t, map[string]string{"manifest.yaml": manifest}), "another origin": archive(t, map[string]string{"api.json": petDocument,
			"manifest.yaml": strings.Replace(manifest, api.URL, "https://elsewhere.example", 1)})} {
		if _, err := w.ImportPackage(t.Context(), "pets", "api.json", bad); problem.CodeOf(err) != problem.Invalid && problem.CodeOf(err) != problem.NotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := archive(t, map[string]string{"api.json": petDocument, "manifest.yaml": manifest})
	first, err := w.ImportPackage(t.Context(), "pets", "api.json", good)
	if err != nil {
		t.Fatal(err)
	}
	if first.Operations != 2 || len(first.Changes) != 3 {
		t.Errorf("imported %+v", first)
	}
	again, err := w.ImportPackage(t.Context(), "pets", "api.json", good)
	if err != nil || again.Digest != first.Digest || len(again.Changes) != 0 {
		t.Errorf("imported again: %+v, %v", again, err)
	}
	buskit.Eventually(t, "the operations are listed", func() bool {
		all, err := w.Connections(t.Context())
		return err == nil && len(all) == 1 && len(all[0].Tools) == 2
	})
	if _, err := w.StartRun(t.Context(), "keeper", "go"); err != nil {
		t.Fatal(err)
	}
	r := w.ended()
	if r.State != "completed" || !strings.Contains(r.Message, "Rex") || !strings.Contains(r.Message, "denied") {
		t.Errorf("the run ended %s: %s", r.State, r.Message)
	}
	if len(got) != 1 || !strings.HasPrefix(got[0], "GET /pets/a%2Fb?tags=x&tags=y%20z the-pet-key ") {
		t.Errorf("the API got %q", got)
	}
}

func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for name, text := range files {
		f, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(f, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
