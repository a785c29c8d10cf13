package runtime_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/artifact"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/services/runtime"
)

// A later script of the session has what an earlier one kept, in the form in which it was given.
func TestArtifacts(t *testing.T) {
	h := start(t, false)
	const keeps = `const kept = [await artifacts.put("note.txt", "héllo"), await artifacts.put("total.json", {a: [1, null], b: "é"}), await artifacts.put("raw.bin", new Uint8Array([0, 255, 10]).subarray(1)),
		await artifacts.put("big.txt", "x".repeat(600000)), await artifacts.put("note.txt", "hallo")]; return kept.map(k => [k.name, k.type, k.size])`
	if got := h.value(keeps); got != `[["note.txt","text",6],["total.json","json",23],["raw.bin","bytes",2],["big.txt","text",600000],["note.txt","text",5]]` {
		t.Error(got)
	}
	const reads = `const b = await artifacts.get("raw.bin"); const gone = [await artifacts.delete("total.json"), await artifacts.delete("total.json"), await artifacts.get("total.json")];
		return [await artifacts.get("note.txt"), b instanceof Uint8Array, [...b], (await artifacts.get("big.txt")).length, gone, (await artifacts.list()).map(a => a.name), await artifacts.get("never")]`
	if got := h.value(`return await artifacts.get("total.json")`); got != `{"a":[1,null],"b":"é"}` {
		t.Error(got)
	}
	if got := h.value(reads); got != `["hallo",true,[255,10],600000,[true,false,null],["big.txt","note.txt","raw.bin"],null]` {
		t.Error(got)
	}
	// In one script, each operation sees those before it, awaited or not.
	if got := h.value(`const [a, b, c, d] = await Promise.all([artifacts.put("n", 1), artifacts.get("n"), artifacts.put("n", 2), artifacts.get("n")]); return [b, d]`); got != `[1,2]` {
		t.Error(got)
	}
	for js, want := range map[string]string{
		`artifacts.put("../x", 1)`:                  `"invalid"`,
		`artifacts.put("", 1)`:                      `"invalid"`,
		`artifacts.put(".profile", 1)`:              `"invalid"`,
		`artifacts.put("a/b", 1)`:                   `"invalid"`,
		`artifacts.put("x\u0000", 1)`:               `"invalid"`,
		`artifacts.put("x".repeat(1e6),1)`:          `"invalid"`,
		`artifacts.put(7, 1)`:                       `"TypeError"`,
		`artifacts.put("f", () => 1)`:               `"TypeError"`,
		`artifacts.put("u")`:                        `"TypeError"`,
		`artifacts.put("s", Symbol())`:              `"TypeError"`,
		`artifacts.put("big", "x".repeat(1048577))`: `"artifact_too_large"`,
		`artifacts.get("no such name")`:             `"invalid"`,
		`(async () => { for (let i = 0; i < 200; i++) await artifacts.list() })()`: `"too_many_calls"`,
	} {
		if got := h.value(`try { await ` + js + `; return "done" } catch (e) { return e.code || e.name }`); got != want {
			t.Errorf("%s: %s", js, got)
		}
	}
	got, err := h.artifact("run_1", "big.txt")
	if err != nil || got.Artifact.Size != 600000 || len(got.Value) != 0 || got.Upload == "" {
		t.Errorf("%+v %v", got.Artifact, err)
	}
	raw, err := h.Deps(schemas.Gateway).Log.GetUpload(t.Context(), servicekit.Tenant, got.Upload)
	if err != nil || len(raw) != 600000 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	if got, err := h.artifact("run_1", "raw.bin"); err != nil || string(got.Value) != "\xff\n" || got.Artifact.Type != artifact.Bytes {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := h.artifact("run_1", "total.json"); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("a removed artifact: %v", err)
	}
	for _, of := range []string{"", "run_1.x", "ses_*", "agt_a", "run_>", "ses"} {
		if _, err := h.artifact(of, "n"); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("artifacts of %q: %v", of, err)
		}
	}
}

func (h *house) artifact(of, name string) (ask.GotArtifact, error) {
	return rpc.Ask[ask.GotArtifact](h.t.Context(), h.gateway(), schemas.Runtime, "artifact_get", servicekit.Owner(), ask.GetArtifact{Of: of, Name: name})
}

// What a session keeps in all is bounded, whoever of its scripts keeps it; what is refused stays refused.
func TestArtifactsAreBounded(t *testing.T) {
	h := start(t, false)
	h.again(func(c *runtime.Config) { c.ArtifactBytes, c.ArtifactsBytes, c.Artifacts = 1000, 4000, 6 })
	const most = `const out = []; for (const size of [1001, 1000, 1000, 1000, 1000, 1]) { try { await artifacts.put("a" + out.length, new Uint8Array(size)); out.push(1) } catch (e) { out.push(e.code) } } return out`
	if got := h.value(most); got != `["artifact_too_large",1,1,1,1,"artifact_too_large"]` {
		t.Error(got)
	}
	if got := h.value(`try { await artifacts.put("more", "x") } catch (e) { return [e.name, e.message] }`); got != `["ArtifactError","the session's artifacts would be 4001 bytes; the limit is 4000: delete one first"]` {
		t.Error(got)
	}
	if got := h.value(`await artifacts.delete("a1"); await artifacts.put("a2", ""); for (const n of [1, 2, 3]) await artifacts.put("n" + n, n); try { await artifacts.put("n4", 4) } catch (e) { return e.message }`); got != `"the session keeps 6 artifacts, which is the limit; delete one first"` {
		t.Error(got)
	}
	if got := h.value(`try { for (let i = 0; i < 90; i++) await artifacts.put("n1", "x".repeat(900)); return "kept" } catch (e) { return e.message }`); got != `"the script would keep 4500 bytes in all; the limit of one script is 4000"` {
		t.Error(got) // nobody fills the record by keeping and replacing
	}
	if got := h.value(`return (await artifacts.list()).map(a => a.size).join()`); got != `"0,1000,1000,900,1,1"` {
		t.Error(got)
	}
	if n := len(h.Events(schemas.Activity, "artifact.refused")); n != 4 {
		t.Errorf("%d refusals are recorded", n) // the first was refused before it left the worker
	}
}

// Artifacts are the session's: a run in none has its own, and so has each conversation of an external agent.
func TestArtifactsOfASession(t *testing.T) {
	h := start(t, false)
	for _, r := range []id.Run{"run_1", "run_2"} {
		h.Say(schemas.Agentloop, eventlog.Draft{Key: string(r), Run: r, Event: run.Created{Run: r, Session: "ses_one"}})
	}
	h.admitIn("run_1", "call_a", `return await artifacts.put("n", 7)`)
	h.outcome("call_a")
	for r, want := range map[id.Run]string{"run_2": `"value":7`, "run_3": `"value":null`, "mcp_x": `"value":null`} {
		c := id.Call("call_" + strings.ReplaceAll(string(r), "_", "-"))
		h.admitIn(r, c, `return await artifacts.get("n")`)
		if _, result := h.outcome(c); !strings.Contains(result, want) {
			t.Errorf("%s: %s", r, result)
		}
	}
	for _, of := range []string{"run_1", "run_2", "ses_one"} {
		got, err := rpc.Ask[ask.Artifacts](t.Context(), h.gateway(), schemas.Runtime, "artifacts_list", servicekit.Owner(), ask.ListArtifacts{Of: of})
		if err != nil || got.Owner != "ses_one" || len(got.Artifacts) != 1 || got.Artifacts[0].Name != "n" || got.Artifacts[0].Call != "call_a" || got.Artifacts[0].KeptAt.IsZero() {
			t.Errorf("%s: %+v %v", of, got, err)
		}
	}
	foreign := servicekit.Owner()
	foreign.Tenant = "tnt_b"
	if got, err := rpc.Ask[ask.Artifacts](t.Context(), h.gateway(), schemas.Runtime, "artifacts_list", foreign, ask.ListArtifacts{Of: "ses_one"}); err != nil || len(got.Artifacts) != 0 {
		t.Errorf("another tenant sees %+v %v", got, err)
	}
}

// What a tainted script keeps taints who reads it, or only its name.
func TestArtifactsCarryTaint(t *testing.T) {
	for name, read := range map[string]string{"get": `await artifacts.get("page")`, "list": `await artifacts.list()`} {
		t.Run(name, func(t *testing.T) {
			h := start(t, false)
			h.admit("call_a", source(`await tools.tickets.find({}); await artifacts.put("page", "x"); return 1`))
			h.finish(h.nested(1), `1`)
			h.outcome("call_a")
			got, err := h.artifact("run_1", "page")
			if err != nil || !slices.Equal(got.Artifact.Taint, []string{"hook_a", "con_tickets"}) {
				t.Errorf("%+v %v", got, err)
			}
			h.admit("call_b", source(`await artifacts.put("own", 1); `+read+`; await tools.tickets.close({})`))
			r := h.nested(2)
			if !slices.Contains(r.Taint, "con_tickets") {
				t.Errorf("a call of who read it: %v", r.Taint)
			}
			h.finish(r, `1`)
			if f, _ := h.outcome("call_b"); !slices.Contains(f.Taint, "con_tickets") {
				t.Errorf("its result: %v", f.Taint)
			}
			if got, err := h.artifact("run_1", "own"); err != nil || slices.Contains(got.Artifact.Taint, "con_tickets") {
				t.Errorf("kept before it was read: %+v %v", got, err)
			}
		})
	}
}

// A script that is run again keeps nothing twice, and sees what it saw, whatever others did meanwhile.
func TestArtifactsWhenRunAgain(t *testing.T) {
	h := start(t, false)
	h.value(`await artifacts.put("a", "old")`)
	h.admit("call_js", source(`const seen = [await artifacts.get("a"), (await artifacts.list()).length]; await artifacts.put("b", 1); await artifacts.put("b", 2);
		let no; try { await artifacts.put("c", new Uint8Array(1048577)) } catch (e) { no = e.code }
		const t = await tools.tickets.close({}); await artifacts.delete("b"); return [...seen, await artifacts.get("a"), await artifacts.get("b"), no, t]`))
	r := h.nested(1)
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(run1), Event: call.Held{Call: r.Call, Run: run1, Agent: "agt_a", Tool: r.Tool, Digest: "d"}})
	h.letsGo("call_js")
	if got := h.value(`await artifacts.put("a", "new"); await artifacts.put("z", 1); return await artifacts.get("b")`); got != "2" {
		t.Error(got) // another script of the session sees what this one kept so far
	}
	h.finish(r, `"t"`)
	if _, result := h.outcome("call_js"); !strings.Contains(result, `"value":["old",1,"old",null,"artifact_too_large","t"]`) {
		t.Error(result)
	}
	if n := len(h.Events(schemas.Activity, "artifact.kept")); n != 5 {
		t.Errorf("%d artifacts were kept, want a, b, b, a, z", n)
	}
	if got := h.value(`return [await artifacts.get("a"), await artifacts.get("b")]`); got != `["new",null]` {
		t.Error(got)
	}
}

// A crash around the record of a change: where it is recorded it is found, where it is not it is made, once either way.
func TestArtifactThatWasCutOff(t *testing.T) {
	sum := sha256.Sum256([]byte("v"))
	at := artifact.Origin{Owner: "run_1", Run: run1, Call: "call_js", Seq: 1}
	for name, c := range map[string]struct {
		before schemas.Event
		want   string
		kept   int
	}{
		"recorded":              {artifact.Kept{Origin: at, Name: "a", Type: artifact.Text, Size: 1, Digest: hex.EncodeToString(sum[:]), Body: artifact.Value{Value: []byte("v")}}, `"value":["v",1]`, 1},
		"not recorded":          {nil, `"value":["v",1]`, 1},
		"refused":               {artifact.Refused{Origin: at, Name: "a", Digest: hex.EncodeToString(sum[:]), Code: "too_large", Message: "m"}, `"code":"artifact_too_large"`, 0},
		"recorded as another":   {artifact.Kept{Origin: at, Name: "b", Type: artifact.Text, Size: 1, Digest: hex.EncodeToString(sum[:])}, "replay_divergence", 1},
		"recorded as removed":   {artifact.Removed{Origin: at, Name: "a"}, "replay_divergence", 0},
		"of the call elsewhere": {artifact.Kept{Origin: artifact.Origin{Owner: "run_1", Run: run1, Call: "call_other", Seq: 1}, Name: "z", Type: artifact.Text, Digest: "d"}, `"value":["v",2]`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, false)
			if c.before != nil && name == "of the call elsewhere" {
				h.Say(schemas.Runtime, eventlog.Draft{Key: "run_1", Event: c.before})
			}
			h.stop()
			h.admit("call_js", source(`await artifacts.put("a", "v"); return [await artifacts.get("a"), (await artifacts.list()).length]`))
			if c.before != nil && name != "of the call elsewhere" {
				h.Say(schemas.Runtime, eventlog.Draft{Key: "run_1", Event: c.before})
			}
			h.run()
			if _, result := h.outcome("call_js"); !strings.Contains(result, c.want) {
				t.Error(result)
			}
			if n := len(h.Events(schemas.Activity, "artifact.kept")); n != c.kept {
				t.Errorf("%d are kept, want %d", n, c.kept)
			}
		})
	}
}

// Scripts of a session that keep at once are all heard: the changes are appended by compare-and-swap.
func TestArtifactsAtOnce(t *testing.T) {
	h := start(t, false)
	const scripts, each = 4, 5
	for n := range scripts {
		h.admit(id.Call(fmt.Sprint("call_", n)), source(fmt.Sprintf(`for (let i = 0; i < %d; i++) await artifacts.put("s%d-" + i, i); return 1`, each, n)))
	}
	for n := range scripts {
		if _, result := h.outcome(id.Call(fmt.Sprint("call_", n))); !strings.Contains(result, `"value":1`) {
			t.Error(result)
		}
	}
	if got := h.value(`return (await artifacts.list()).length`); got != fmt.Sprint(scripts*each) {
		t.Error(got)
	}
}

// A script finds what it may call, and is told the same when it is run again.
func TestSearchOfTools(t *testing.T) {
	h := start(t, false)
	var asked []string
	servicekit.Answer(h.Kit, schemas.Toolbroker, "tools_search", func(_ context.Context, who rpc.Caller, q ask.SearchTools) (ask.FoundTools, error) {
		asked = append(asked, fmt.Sprint(who.Tenant, q))
		return ask.FoundTools{Tools: []ask.FoundTool{{Name: fmt.Sprint("tickets.find", len(asked)), Description: "Find"}}}, nil
	})
	servicekit.Answer(h.Kit, schemas.Toolbroker, "tool_describe", func(_ context.Context, _ rpc.Caller, q ask.DescribeTool) (ask.DescribedTool, error) {
		asked = append(asked, q.Name)
		if q.Name == "none.such" {
			return ask.DescribedTool{}, problem.New(problem.NotFound, "there is no tool")
		}
		return ask.DescribedTool{Name: q.Name, Types: "declare", Schema: json.RawMessage(`{"type":"object"}`)}, nil
	})
	h.admit("call_js", source(`const found = await tools.search("find tickets", {limit: 3}), d = await tools.describe(found[0].name); let no; try { await tools.describe("none.such") } catch (e) { no = [e.name, e.code] }
		const bad = []; for (const f of [() => tools.search(), () => tools.search(""), () => tools.describe(7), () => tools.search({q: 1})]) { try { await f() } catch (e) { bad.push(e.name) } }
		return [found, d, no, bad, await tools.tickets.find({})]`))
	r := h.nested(1)
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(run1), Event: call.Held{Call: r.Call, Run: run1, Agent: "agt_a", Tool: r.Tool, Digest: "d"}})
	h.letsGo("call_js")
	h.finish(r, `1`)
	_, result := h.outcome("call_js")
	if want := `"value":[[{"name":"tickets.find1","description":"Find","writes":false}],{"name":"tickets.find1","description":"","writes":false,"types":"declare","schema":{"type":"object"}},["ToolError","not_found"],["TypeError","TypeError","TypeError","TypeError"],1]`; !strings.Contains(result, want) {
		t.Error(result)
	}
	if want := []string{"tnt_a{agt_a run_1 find tickets 3 false}", "tickets.find1", "none.such"}; !slices.Equal(asked, want) {
		t.Errorf("the broker was asked %q", asked)
	}
	if n := len(h.Events(schemas.Activity, "script.searched")); n != 3 {
		t.Errorf("%d searches are recorded", n)
	}
}
