package up

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/services/gateway"
)

// Whatever a client sends, it gets an error that it can read, nothing is called, and whoever comes after is served.
func TestMCPHostile(t *testing.T) {
	const most = 20
	w := newMCPWorld(t, func(c *gateway.Config) { c.MCPSessions = most })
	p := provide(t, eras[without])
	w.provider("s", p.url, 7)
	w.agent("a")
	w.agent("b")
	for i, tool := range []string{"give", "write"} {
		w.grant("a", fmt.Sprint("g", i), "s."+tool)
	}
	request := func(method, params string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s%s}}`, method, modernMeta, params)
	}
	headers := func(method, name string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Mcp-Method", method)
			if name != "" {
				r.Header.Set("Mcp-Name", name)
			}
		}
	}
	page := base64.RawURLEncoding.EncodeToString
	for name, c := range map[string]struct {
		era, body string
		change    func(*http.Request)
		want      string // in the answer
		status    int
	}{
		"no JSON":            {era: without, body: `{"jsonrpc`, change: headers("ping", ""), status: 400},
		"nothing":            {era: without, body: ``, change: headers("ping", ""), status: 400},
		"over 4 MiB":         {era: without, body: request("tools/call", `,"name":"s__give","arguments":{"x":"`+strings.Repeat("x", 4<<20)+`"}`), change: headers("tools/call", "s__give"), want: "too_large", status: 413},
		"a batch":            {era: without, body: "[" + request("tools/list", "") + "," + request("tools/list", "") + "]", change: headers("tools/list", ""), status: 400},
		"a batch of before":  {era: sessions, body: `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]`, status: 400},
		"deep":               {era: without, body: request("tools/call", `,"name":"s__give","arguments":{"x":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)+`}`), change: headers("tools/call", "s__give")},
		"deep in meta":       {body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":` + strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000) + `}}}`},
		"no such cursor":     {era: without, body: request("tools/list", `,"cursor":"%%%"`), change: headers("tools/list", ""), want: "cursor"},
		"a long cursor":      {era: without, body: request("tools/list", `,"cursor":"`+page([]byte(strings.Repeat("x", 300)))+`"`), change: headers("tools/list", ""), want: "cursor"},
		"a cursor of others": {era: without, body: request("prompts/list", `,"cursor":"`+page([]byte("s.give"))+`"`), change: headers("prompts/list", ""), want: "cursor"},
		"before the first":   {era: without, body: request("prompts/list", `,"cursor":"`+page([]byte("-9"))+`"`), change: headers("prompts/list", "")},
		"no such method":     {era: without, body: request("tools/destroy", ""), change: headers("tools/destroy", ""), want: "-32601"},
		"header of another":  {era: without, body: request("tools/call", `,"name":"s__give","arguments":{}`), change: headers("tools/call", "s__write"), want: "-32020", status: 400},
		"method of another":  {era: without, body: request("tools/call", `,"name":"s__give","arguments":{}`), change: headers("tools/list", "s__give"), want: "-32020", status: 400},
		"a huge name":        {era: without, body: request("tools/call", `,"name":"`+strings.Repeat("n", 100_000)+`","arguments":{}`), change: headers("tools/call", strings.Repeat("n", 1000)), status: 400},
		"a name of nothing":  {era: without, body: request("tools/call", `,"name":"__","arguments":{}`), change: headers("tools/call", "__"), want: "unknown tool"},
		"a method as a name": {era: without, body: request("tools/call", `,"name":"s__resources/read","arguments":{}`), change: headers("tools/call", "s__resources/read"), want: "unknown tool"},
		"arguments: a list":  {era: without, body: request("tools/call", `,"name":"s__give","arguments":[1]`), change: headers("tools/call", "s__give"), want: "error"},
		"no params at all":   {era: without, body: `{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, change: headers("resources/list", ""), want: "error"},
		"another host":       {era: without, body: request("tools/list", ""), change: func(r *http.Request) { r.Host = "evil.example"; headers("tools/list", "")(r) }, want: "denied", status: 403},
		"another origin":     {era: without, body: request("tools/list", ""), change: func(r *http.Request) { r.Header.Set("Origin", "https://evil.example"); headers("tools/list", "")(r) }, want: "denied", status: 403},
		"no token":           {era: without, body: request("tools/list", ""), change: func(r *http.Request) { r.Header.Del("Authorization"); headers("tools/list", "")(r) }, want: "unauthenticated", status: 401},
		"no such session":    {era: sessions, body: `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, change: func(r *http.Request) { r.Header.Set("Mcp-Session-Id", "x") }, status: 404},
		"a member's token": {era: without, body: request("tools/list", ""), change: func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer ewt_"+strings.Repeat("a", 43))
			headers("tools/list", "")(r)
		}, status: 401},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*http.Request) {}
			}
			status, answer, _ := w.post(t, "a", c.era, c.body, c.change)
			if c.status != 0 && status != c.status || status >= 500 || !strings.Contains(answer, c.want) {
				t.Errorf("%d %.500s", status, answer)
			}
		})
	}
	t.Run("null arguments", func(t *testing.T) {
		for _, params := range []string{`,"name":"s__give","arguments":null`, `,"name":"s__give"`} {
			if status, answer, _ := w.post(t, "a", without, request("tools/call", params), headers("tools/call", "s__give")); status != 200 || !strings.Contains(answer, "structuredContent") {
				t.Errorf("%d %s", status, answer)
			}
		}
	})
	t.Run("IBM/mcp-context-forge#2055 another's session", func(t *testing.T) {
		_, _, header := w.post(t, "a", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		session := header.Get("Mcp-Session-Id")
		if session == "" {
			t.Fatal("no session")
		}
		for as, want := range map[string]int{"a": 200, "b": 404} {
			if status, answer, _ := w.post(t, as, sessions, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, func(r *http.Request) { r.Header.Set("Mcp-Session-Id", session) }); status != want {
				t.Errorf("%s: %d %s", as, status, answer)
			}
		}
	})
	t.Run("more sessions than it may have", func(t *testing.T) {
		var opened, refused int
		for range 3 * most {
			_, answer, _ := w.post(t, "b", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
			if strings.Contains(answer, "busy") {
				refused++
			} else if strings.Contains(answer, "protocolVersion") {
				opened++
			}
		}
		if opened != most || refused != 2*most {
			t.Errorf("%d opened, %d refused", opened, refused)
		}
	})
	t.Run("more streams than it may have", func(t *testing.T) {
		listen := request("subscriptions/listen", `,"notifications":{"toolsListChanged":true}`)
		answers := make(chan string, 5*most)
		var open []*http.Response
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 5 * most {
			all.Go(func() {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.endpoints.API+"/mcp", strings.NewReader(listen))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header = http.Header{"Authorization": {"Bearer " + w.tokens["b"]}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
					"Mcp-Protocol-Version": {without}, "Mcp-Method": {"subscriptions/listen"}}
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				open = append(open, resp)
				mu.Unlock()
				first := make([]byte, 4096)
				n, _ := resp.Body.Read(first)
				answers <- string(first[:n])
			})
		}
		all.Wait()
		close(answers)
		busy := 0
		for a := range answers {
			if strings.Contains(a, "busy") {
				busy++
			}
		}
		if busy != 4*most {
			t.Errorf("%d of %d streams were refused, want %d", busy, 5*most, 4*most)
		}
		for _, resp := range open {
			resp.Body.Close()
		}
		buskit.Eventually(t, "there is room again", func() bool {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.endpoints.API+"/mcp", strings.NewReader(listen))
			must(t, err)
			r.Header = http.Header{"Authorization": {"Bearer " + w.tokens["b"]}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
				"Mcp-Protocol-Version": {without}, "Mcp-Method": {"subscriptions/listen"}}
			resp, err := http.DefaultClient.Do(r)
			must(t, err)
			defer resp.Body.Close()
			first := make([]byte, 4096)
			n, _ := resp.Body.Read(first)
			return strings.Contains(string(first[:n]), "acknowledged")
		})
	})
	if n := p.effects.Load(); n != 0 {
		t.Errorf("%d effects", n)
	}
	s, _ := w.dial(t, "a", without, "/mcp", nil)
	if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "s__give"}); err != nil {
		t.Error(err)
	}
}

// 1,200 tools of several connections come page by page, each once; a server that is dead takes none of the others' away.
func TestMCPManyTools(t *testing.T) {
	w := newMCPWorld(t, nil)
	w.agent("a")
	w.grant("a", "all", "*.*")
	var want []string
	for i := range 3 {
		name := fmt.Sprint("m", i)
		w.provider(name, many(t, 400), 400)
		for n := range 400 {
			want = append(want, fmt.Sprintf("%s__tool_%03d", name, n))
		}
	}
	dead := provide(t, eras[without])
	w.provider("dead", dead.url, 7)
	dead.down.Store(true)
	for _, era := range []string{sessions, without} {
		t.Run("agentgateway/agentgateway#1266 "+era, func(t *testing.T) {
			s, _ := w.dial(t, "a", era, "/mcp", nil)
			var got []string
			pages := 0
			for at := ""; pages == 0 || at != ""; pages++ {
				list, err := s.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: at})
				must(t, err)
				for _, tool := range list.Tools {
					if !strings.HasPrefix(tool.Name, "dead__") {
						got = append(got, tool.Name)
					}
				}
				at = list.NextCursor
			}
			slices.Sort(got)
			if pages < 2 || !slices.Equal(got, want) {
				t.Errorf("%d pages with %d tools", pages, len(got))
			}
			for _, name := range []string{want[0], want[len(want)-1]} {
				if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name}); err != nil {
					t.Error(err)
				}
			}
			began := time.Now()
			list, err := s.ListPrompts(t.Context(), nil)
			if err != nil || len(list.Prompts) != 0 {
				t.Errorf("%+v, %v after %s", list, err, time.Since(began))
			}
			_, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "dead__give"})
			if code, data := wire(t, err); code != -32055 || data.Call == "" {
				t.Errorf("%d %+v", code, data)
			}
		})
	}
}
