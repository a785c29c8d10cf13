package up

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// bench is an external agent with a machine attached, in the whole of ExecWarden.
type bench struct {
	*world
	token string
}

func newBench(b *testing.B) *bench {
	w := newWorldAround(b)
	w.logs = io.Discard
	w.start()
	b.Cleanup(func() { w.stop() })
	w.newOutpost("box", "")
	buskit.Eventually(b, "the machine is online", func() bool { return w.environment("box").State == ask.Online })
	if err := w.PutAgent(b.Context(), agent.Defined{Agent: "agt_laptop", Hosting: agent.External}, ""); err != nil {
		b.Fatal(err)
	}
	if err := w.PutGrant(b.Context(), grant.Created{Grant: "grt_laptop", Agent: "agt_laptop", Selector: grant.Selector{Tool: "machine.*"}, Approval: grant.Never, Tainted: true}); err != nil {
		b.Fatal(err)
	}
	if _, err := w.Attach(b.Context(), "box", client.Attachment{Agent: "laptop"}); err != nil {
		b.Fatal(err)
	}
	k, err := w.CreateToken(b.Context(), client.NewToken{Agent: "agt_laptop"})
	if err != nil {
		b.Fatal(err)
	}
	return &bench{w, k.Secret}
}

// exec runs a command by the MCP endpoint, as a client of the protocol without sessions does.
func (w *bench) exec(argv ...string) (e machine.Exec) {
	w.t.Helper()
	raw, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": "machine__exec", "arguments": machine.ExecArgs{Argv: argv}, "_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": map[string]string{"name": "bench", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": struct{}{},
		}}})
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.endpoints.API+"/mcp", bytes.NewReader(raw))
	if err != nil {
		w.t.Fatal(err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + w.token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "machine__exec"} {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	var answer struct {
		Result struct {
			Exec machine.Exec `json:"structuredContent"`
		} `json:"result"`
	}
	_, data, _ := strings.Cut(string(body), "data: ")
	if json.Unmarshal([]byte(data), &answer) != nil || answer.Result.Exec.Code == nil {
		w.t.Fatalf("%s %s", resp.Status, body)
	}
	return answer.Result.Exec
}

// BenchmarkMachineTrue is a command from an MCP client and back: gateway, broker, registry, connector, shim, and the ledger beside.
func BenchmarkMachineTrue(b *testing.B) {
	w := newBench(b)
	w.exec("true")
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		w.exec("true")
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50_us")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95_us")
}

// BenchmarkMachineOutput is output from a command to whoever reads it at the API: all of it, stored.
func BenchmarkMachineOutput(b *testing.B) {
	w := newBench(b)
	const size = 16 << 20
	b.SetBytes(size)
	for b.Loop() {
		e := w.exec("head", "-c", "16777216", "/dev/zero")
		read, next := 0, uint64(0)
		for page := (ask.Output{}); page.End == nil; next = page.Next {
			var err error
			if page, err = w.Output(b.Context(), id.Call(e.Exec), next, time.Second); err != nil {
				b.Fatal(err)
			}
			for _, p := range page.Pieces {
				read += len(p.Data)
			}
		}
		if read != size {
			b.Fatalf("%d bytes of %d", read, size)
		}
	}
}
