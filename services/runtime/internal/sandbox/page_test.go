package sandbox

import (
	"context"
	"strings"
	"testing"
)

// What a script makes of a response.
func TestResponses(t *testing.T) {
	p := newPool(t)
	for _, c := range []struct {
		name, kind, body, source, want string
	}{
		{"text in its charset", "text/plain; charset=latin1", "h\xe9", `r.text()`, `"hé"`},
		{"text in UTF-8", "", "h\xc3\xa9", `r.text()`, `"hé"`},
		{"text in no charset", "text/plain; charset=x-nope", "h", `r.text().catch(e => e.name + ": " + e.message)`, `"TypeError: the charset \"x-nope\" is not known; read the response with bytes()"`},
		{"JSON", "application/json", "\uFEFF{\"a\":1}", `r.json()`, `{"a":1}`},
		{"an error page for JSON", "text/html", "<html>\n<body>", `r.json().catch(e => e.name + ": " + e.message)`,
			`"SyntaxError: the response is not JSON: line 1, column 1: invalid character '<' looking for beginning of value; its content-type is \"text/html\" and it begins with \"<html>\\n<body>\""`},
		{"wrong JSON", "application/json", "{\n \"a\": tru}", `r.json().catch(e => e.message.split(";")[0])`, `"the response is not JSON: line 2, column 10: invalid character '}' in literal true (expecting 'e')"`},
		{"JSON cut short", "application/json", `{"a":[1,`, `r.json().catch(e => e.message.split(";")[0])`, `"the response is not JSON: it ends too early, at byte 8"`},
		{"no JSON at all", "", "", `r.json().catch(e => e.message)`, `"the response is not JSON: it is empty; its content-type is \"\" and it begins with \"\""`},
		{"markdown", "text/html", `<h1>Hi</h1><p>see <a href="b">it</a>`, `r.markdown()`, `"# Hi\n\nsee [it](https://e.test/a/b)"`},
		{"plain", "text/html", `<h1>Hi</h1><p>see <a href="b">it</a>`, `r.plain()`, `"Hi\n\nsee it"`},
		{"an image", "image/png", "\x89PNG", `r.markdown().catch(e => e.name + ": " + e.message)`, `"TypeError: the response is image/png, which is no text; read it with bytes()"`},
		{"a body is read once", "text/html", "x", `r.markdown().then(() => r.text()).catch(e => e.name)`, `"TypeError"`},
		{"a response of one's own", "", "", `new Response("<p>a<p>b").plain()`, `"a\n\nb"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := &fakeHost{fetch: func(context.Context, Request) (Response, error) {
				r := Response{Status: 200, URL: "https://e.test/a/", Body: []byte(c.body)}
				if c.kind != "" {
					r.Header = []Field{{Name: "Content-Type", Value: c.kind}}
				}
				return r, nil
			}}
			got, err := p.Run(t.Context(), "t1", script(`const r = await fetch("https://e.test/a/"); return await `+c.source), host)
			if err != nil || string(got.Value) != c.want {
				t.Errorf("%s, %v; want %s", got.Value, err, c.want)
			}
		})
	}
}

// Pages that are made to hurt who reads them: the script is told, or is stopped, and the pool goes on.
func TestHostilePages(t *testing.T) {
	p := newPool(t)
	for name, page := range map[string]string{
		"deep":       strings.Repeat("<div>", 200_000),
		"deep marks": strings.Repeat("<b><i>", 100_000),
		"quotes":     strings.Repeat("<blockquote>", 480) + strings.Repeat("x<br>", 100_000),
		"attribute":  `<a href="` + strings.Repeat("x", 1<<20) + `">y</a>`,
		"elements":   strings.Repeat("<p>", 2<<20/3),
		"too large":  strings.Repeat("x", 3<<20),
	} {
		t.Run(name, func(t *testing.T) {
			host := &fakeHost{fetch: func(context.Context, Request) (Response, error) {
				return Response{Status: 200, Header: []Field{{Name: "Content-Type", Value: "text/html"}}, Body: []byte(page)}, nil
			}}
			got, err := p.Run(t.Context(), "t1", script(`const r = await fetch("https://e.test/"); try { return (await r.markdown()).length >= 0 } catch (e) { return e.name }`), host)
			if code := codeOf(err); err != nil && code != CodeMemory && code != CodeCPU || err == nil && string(got.Value) != "true" && string(got.Value) != `"TypeError"` {
				t.Errorf("%s, %v", got.Value, err)
			}
			t.Logf("%s %v cpu %s heap %d", got.Value, err, got.Stats.CPU, got.Stats.Heap)
		})
	}
	if _, err := p.Run(t.Context(), "t1", script(`1`), &fakeHost{}); err != nil {
		t.Errorf("the pool did not survive: %v", err)
	}
}

// What the engine refuses without asking, and the errors of what it asks for.
func TestReach(t *testing.T) {
	p := newPool(t)
	for _, c := range []struct{ name, source, want string }{
		{"tools.search", `return tools.search("open invoices", {limit: 3})`, `[{"seq":1,"query":"open invoices","limit":3}]`},
		{"tools.describe", `return tools.describe("gh.list")`, `[{"seq":1,"tool":"gh.list"}]`},
		{"a connection called search", `return [typeof tools.search.find, await tools.search.find({}).catch(e => e.code), typeof tools.search.then]`, `["function","tool_unknown","undefined"]`},
		{"a redirect that is not followed", `try { await fetch("http://a.test/", {redirect: "manual"}) } catch (e) { return e.name }`, `"TypeError"`},
		{"a long query", `try { await tools.search("x".repeat(2000)) } catch (e) { return [e.name, e.code] }`, `["ToolError","args_too_large"]`},
		{"many searches", `let n = 0; try { for (;;) { await tools.describe("a.b"); n++ } } catch (e) { return [n, e.code] }`, `[20,"too_many_calls"]`},
		{"many operations", `let n = 0; try { for (;;) { await artifacts.put("a", ""); n++ } } catch (e) { return [n, e.name, e.code] }`, `[100,"ArtifactError","too_many_calls"]`},
		{"artifacts stay", `try { artifacts.put = 1 } catch {} try { artifacts = 1 } catch {} return [typeof artifacts.put, Object.isFrozen(artifacts)]`, `["function",true]`},
		{"a value of every type", `const out = []; for (const v of ["t", {a: 1}, null, 7, new Uint8Array([1]), new ArrayBuffer(2), new DataView(new ArrayBuffer(3), 1)]) {
			const k = await artifacts.put("n", v); out.push(k) } return out.length`, `7`},
		{"patched", `JSON.stringify = () => '"pwn"'; Promise.prototype.then = () => { throw 1 }; return await tools.search("real")`, `[{"seq":1,"query":"real"}]`},
		{"half a surrogate pair", `return tools.search("a\ud800")`, `[{"seq":1,"query":"a�"}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := &fakeHost{kept: Kept{Value: []byte("null")}}
			got, err := p.Run(t.Context(), "t1", script(c.source), host)
			if err != nil || string(got.Value) != c.want {
				t.Errorf("%s, %v; want %s", got.Value, err, c.want)
			}
		})
	}
}
