package gateway

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/schemas/token"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// made is the answer to making a member or a token.
type made struct {
	Member    id.Member
	Role      member.Role
	Token     id.Token
	Secret    string
	ExpiresAt time.Time `json:"expires_at"`
}

func (h *house) add(t *testing.T, name string, role member.Role) made {
	t.Helper()
	got := h.call(t, h.owner, "POST", "/v1/members", `{"name":"`+name+`","email":"`+strings.ToLower(name)+`@example.com","role":"`+string(role)+`"}`)
	if got.status != 200 {
		t.Fatal(got)
	}
	var m made
	got.decode(t, &m)
	return m
}

func (h *house) newToken(t *testing.T, with, body string) made {
	t.Helper()
	got := h.call(t, with, "POST", "/v1/tokens", body)
	if got.status != 200 {
		t.Fatal(got)
	}
	var m made
	got.decode(t, &m)
	return m
}

// refused says that a token gives nothing any more, of whatever endpoint.
func (h *house) refused(t *testing.T, secret string) {
	t.Helper()
	for _, path := range []string{"/v1/whoami", "/v1/runs", "/v1/events", "/v1/events/tail"} {
		if got := h.call(t, secret, "GET", path, ""); got.status != 401 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := h.call(t, secret, "POST", "/v1/tokens", "{}"); got.status != 401 {
		t.Errorf("it makes tokens: %+v", got)
	}
}

func TestMemberIsAddedListedAndErased(t *testing.T) {
	h := start(t)
	ada := h.add(t, "Ada", member.Approver)
	if !strings.HasPrefix(ada.Secret, "ewt_") || ada.Role != member.Approver || strings.Contains(strings.ToLower(string(ada.Member)), "ada") {
		t.Fatalf("%+v", ada)
	}
	var who auth.Identity
	h.call(t, ada.Secret, "GET", "/v1/whoami", "").decode(t, &who)
	if who.Member != ada.Member || who.Role != member.Approver || who.Tenant != auth.MainTenant {
		t.Errorf("%+v", who)
	}
	if got := h.call(t, h.owner, "GET", "/v1/members", ""); !strings.Contains(got.body, `"name":"Ada","email":"ada@example.com","role":"approver","state":"active"`) {
		t.Error(got)
	}
	if got := h.call(t, ada.Secret, "GET", "/v1/members", ""); !strings.Contains(got.body, `"name":"Ada"`) || strings.Contains(got.body, "@example") {
		t.Errorf("an approver reads addresses: %s", got.body)
	}
	// By name, by id, and whatever the case of its letters.
	for path, role := range map[string]string{"/v1/members/Ada/role": "auditor", "/v1/members/" + string(ada.Member) + "/role": "admin", "/v1/members/aDA/role": "auditor"} {
		if got := h.call(t, h.owner, "PUT", path, `{"role":"`+role+`"}`); got.status != 200 {
			t.Error(path, got)
		}
		h.call(t, ada.Secret, "GET", "/v1/whoami", "").decode(t, &who)
		if want := member.Narrower(member.Approver, member.Role(role)); who.Role != want { // the token is as it was made
			t.Errorf("%s: the token gives %s, want %s", path, who.Role, want)
		}
	}
	if got := h.call(t, h.owner, "POST", "/v1/members/Ada/erase", ""); got.status != 409 {
		t.Errorf("a member is erased: %+v", got)
	}
	for range 2 { // again, because somebody was not sure
		if got := h.call(t, h.owner, "POST", "/v1/members/Ada/remove", `{"reason":"left"}`); got.status != 200 || !strings.Contains(got.body, "confirmed_ms") {
			t.Fatal(got)
		}
	}
	if got := h.call(t, h.owner, "GET", "/v1/members", ""); !strings.Contains(got.body, `"state":"removed","reason":"left"`) {
		t.Error(got)
	}
	if got := h.call(t, h.owner, "POST", "/v1/members/Ada/erase", ""); got.status != 200 {
		t.Error(got)
	}
	if got := h.call(t, h.owner, "GET", "/v1/members", ""); strings.Contains(got.body, "Ada") || strings.Contains(got.body, "@example") || !strings.Contains(got.body, string(ada.Member)) {
		t.Errorf("not erased: %s", got.body)
	}
	removals := 0
	for e, err := range h.log.Read(t.Context(), schemas.Control, "ew.v1.>", 1) {
		if err != nil || strings.Contains(string(e.Raw), "Ada") || strings.Contains(string(e.Raw), "example.com") || strings.Contains(string(e.Raw), ada.Secret) {
			t.Errorf("%v: %s", err, e.Raw)
		}
		if gone, err := eventlog.Decode[member.Removed](e); err == nil {
			removals++
			if gone.Member != ada.Member || gone.Reason != "left" || len(gone.Tokens) != 1 || gone.Tokens[0] != ada.Token || e.Envelope.Actor != "mem_owner" {
				t.Errorf("%+v by %s", gone, e.Envelope.Actor)
			}
		}
	}
	if removals != 1 {
		t.Errorf("%d removals", removals)
	}
	if again := h.add(t, "Ada", member.Auditor); again.Member == ada.Member {
		t.Error("somebody who comes back has the same id")
	}
	h.refused(t, ada.Secret)
}

// A deleted account's token works no more: neither any of its tokens, nor its sessions, login links and open streams.
// (Azure/azure-managed-grafana#74: it worked for ten minutes.)
func TestRemovedMemberHasNothingLeft(t *testing.T) {
	h := start(t)
	bob, eve := h.add(t, "Bob", member.Admin), h.add(t, "Eve", member.Admin)
	second := h.newToken(t, bob.Secret, `{"role":"auditor"}`)
	owner := h.owner
	h.owner = bob.Secret
	cookie, code := h.session(t), h.loginCode(t)
	ends := h.openEnd(t, bob.Secret)
	others := h.openEnd(t, eve.Secret)
	h.owner = owner
	if got := h.browse(t, "/", cookie); got.status != 200 {
		t.Fatal(got)
	}
	if got := h.call(t, h.owner, "POST", "/v1/members/Bob/remove", `{"reason":"left"}`); got.status != 200 {
		t.Fatal(got)
	}
	h.refused(t, bob.Secret)
	h.refused(t, second.Secret)
	if got := h.browse(t, "/", cookie); got.status == 200 {
		t.Errorf("the session goes on: %+v", got)
	}
	if got := h.submit(t, "/login", h.base, url.Values{"code": {code}}); got.status != 401 || got.header.Get("Set-Cookie") != "" {
		t.Errorf("the login link works: %+v", got)
	}
	if last := <-ends; !strings.Contains(last, "unauthenticated") {
		t.Errorf("the stream ended with %q", last)
	}
	h.record(t, "run_1", "mem_owner", run.Completed{Run: "run_1"})
	if got := <-others; !strings.Contains(got, "run.completed") {
		t.Errorf("another member's stream: %q", got)
	}
	if got := h.call(t, eve.Secret, "GET", "/v1/whoami", ""); got.status != 200 {
		t.Errorf("another member: %+v", got)
	}
	var tokens struct {
		Tokens []struct {
			Token id.Token
			State string
		}
	}
	h.call(t, h.owner, "GET", "/v1/tokens", "").decode(t, &tokens)
	for _, k := range tokens.Tokens {
		if want := map[id.Token]string{bob.Token: "removed", second.Token: "removed"}[k.Token]; want != "" && k.State != want {
			t.Errorf("%+v", k)
		}
	}
	// A restart brings nobody back.
	h.stop()
	h.run(t, Config{Listen: "127.0.0.1:0", MaxTails: 30, MCPCalls: 64, MCPRate: 50, MCPBurst: 100, MCPSessions: 2000, MCPHeldWait: time.Second, OwnerTokenFile: h.tokenFile})
	h.refused(t, bob.Secret)
	h.refused(t, second.Secret)
	// Who lost the owner's token gets another by taking its file away.
	lost := h.owner
	if err := os.Remove(h.tokenFile); err != nil {
		t.Fatal(err)
	}
	h.stop()
	h.run(t, Config{Listen: "127.0.0.1:0", MaxTails: 30, MCPCalls: 64, MCPRate: 50, MCPBurst: 100, MCPSessions: 2000, MCPHeldWait: time.Second, OwnerTokenFile: h.tokenFile})
	if got := h.call(t, h.owner, "POST", "/v1/tokens/"+string(h.tokenOf(t, auth.Owner))+"/revoke", ""); h.owner == lost || got.status != 200 {
		t.Errorf("%+v", got)
	}
}

// openEnd opens a stream from now on and gives what it last said, when it ends or after its first event.
func (h *house) openEnd(t *testing.T, secret string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", h.base+"/v1/events/tail", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	resp, err := h.client.Do(r)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	said := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		last := ""
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				last = text
				break
			}
		}
		said <- last
	})
	t.Cleanup(func() { cancel(); resp.Body.Close(); reading.Wait() })
	return said
}

func TestTokens(t *testing.T) {
	h := start(t)
	ada, eve := h.add(t, "Ada", member.Admin), h.add(t, "Eve", member.Approver)
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	short := h.newToken(t, ada.Secret, `{"role":"approver","expires_at":"`+soon.Format(time.RFC3339)+`"}`)
	if short.Role != member.Approver || !short.ExpiresAt.Equal(soon) || short.Member != ada.Member {
		t.Errorf("%+v", short)
	}
	if child := h.newToken(t, short.Secret, ``); child.Role != member.Approver || !child.ExpiresAt.Equal(soon) {
		t.Errorf("a token made by a narrow one: %+v", child)
	}
	if eves := h.newToken(t, h.owner, `{"member":"Eve","role":"auditor"}`); eves.Member != eve.Member || eves.Role != member.Auditor {
		t.Errorf("%+v", eves)
	}
	later := soon.Add(time.Hour).Format(time.RFC3339)
	for name, c := range map[string]struct {
		with, body string
		status     int
	}{
		"wider than its maker":   {short.Secret, `{"role":"admin"}`, 403},
		"wider than its member":  {h.owner, `{"member":"Eve","role":"admin"}`, 403},
		"longer than its maker":  {short.Secret, `{"expires_at":"` + later + `"}`, 403},
		"for somebody else":      {ada.Secret, `{"member":"Eve"}`, 403},
		"for an owner":           {ada.Secret, `{"member":"mem_owner"}`, 403},
		"for nobody":             {h.owner, `{"member":"mem_nobody"}`, 404},
		"for a name of nobody":   {h.owner, `{"member":"Nobody"}`, 404},
		"in the past":            {ada.Secret, `{"expires_at":"2020-01-01T00:00:00Z"}`, 400},
		"for ever":               {ada.Secret, `{"expires_at":"9999-01-01T00:00:00Z"}`, 400},
		"a role that is none":    {ada.Secret, `{"role":"root"}`, 400},
		"an id of its own":       {ada.Secret, `{"token":"tok_1"}`, 400},
		"a secret of its own":    {ada.Secret, `{"secret":"ewt_x"}`, 400},
		"a member with wildcard": {h.owner, `{"member":"mem_*"}`, 404},
	} {
		if got := h.call(t, c.with, "POST", "/v1/tokens", c.body); got.status != c.status {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	list := h.call(t, eve.Secret, "GET", "/v1/tokens", "")
	for _, secret := range []string{ada.Secret, eve.Secret, short.Secret, h.owner} {
		if strings.Contains(list.body, secret[4:]) || strings.Contains(list.body, secret[len(secret)-6:]) {
			t.Errorf("the list has a secret, or part of one: %s", list.body)
		}
	}
	if !strings.Contains(list.body, string(short.Token)) || !strings.Contains(list.body, `"fingerprint":"`) {
		t.Error(list)
	}
	for name, c := range map[string]struct {
		with   string
		which  id.Token
		status int
	}{
		"another's, by an approver":  {eve.Secret, ada.Token, 403},
		"one's wider, by a narrower": {short.Secret, ada.Token, 403},
		"an owner's, by an admin":    {ada.Secret, h.tokenOf(t, auth.Owner), 403},
		"none":                       {h.owner, "tok_none", 404},
		"no id":                      {h.owner, "mem_owner", 400},
	} {
		if got := h.call(t, c.with, "POST", "/v1/tokens/"+string(c.which)+"/revoke", ""); got.status != c.status {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	for range 2 {
		if got := h.call(t, ada.Secret, "POST", "/v1/tokens/"+string(short.Token)+"/revoke", `{"reason":"lost"}`); got.status != 200 {
			t.Fatal(got)
		}
	}
	h.refused(t, short.Secret)
	if got := h.call(t, ada.Secret, "GET", "/v1/whoami", ""); got.status != 200 {
		t.Errorf("another token of the same member: %+v", got)
	}
	if got := h.call(t, ada.Secret, "POST", "/v1/tokens/"+string(eve.Token)+"/revoke", ``); got.status != 200 {
		t.Errorf("an admin revokes an approver's: %+v", got)
	}
	h.refused(t, eve.Secret)
	var revoked []token.Revoked
	for e, err := range h.log.Read(t.Context(), schemas.Control, "ew.v1.*.token.>", 1) {
		if err != nil {
			t.Fatal(err)
		}
		if ev, err := eventlog.Decode[token.Revoked](e); err == nil {
			revoked = append(revoked, ev)
		}
	}
	if len(revoked) != 3 || revoked[0].Token != short.Token || revoked[0].Member != ada.Member || revoked[0].Reason != "lost" {
		t.Errorf("%+v", revoked)
	}
}

func (h *house) tokenOf(t *testing.T, m id.Member) id.Token {
	t.Helper()
	var list struct {
		Tokens []struct {
			Token  id.Token
			Member id.Member
		}
	}
	h.call(t, h.owner, "GET", "/v1/tokens", "").decode(t, &list)
	for _, k := range list.Tokens {
		if k.Member == m {
			return k.Token
		}
	}
	t.Fatalf("%s has no token", m)
	return ""
}

func TestMembersHostile(t *testing.T) {
	h := start(t)
	admin, approver := h.add(t, "Ada", member.Admin), h.add(t, "Eve", member.Approver)
	stranger := h.token(t, "tnt_other", member.Owner, time.Time{})
	for name, c := range map[string]struct {
		with, method, path, body string
		status                   int
	}{
		"an approver adds":                 {approver.Secret, "POST", "/v1/members", `{"name":"X","role":"auditor"}`, 403},
		"an admin adds an owner":           {admin.Secret, "POST", "/v1/members", `{"name":"X","role":"owner"}`, 403},
		"an admin widens themselves":       {admin.Secret, "PUT", "/v1/members/Ada/role", `{"role":"owner"}`, 403},
		"an admin narrows the owner":       {admin.Secret, "PUT", "/v1/members/mem_owner/role", `{"role":"auditor"}`, 403},
		"an admin removes the owner":       {admin.Secret, "POST", "/v1/members/mem_owner/remove", ``, 403},
		"the last owner leaves":            {h.owner, "POST", "/v1/members/mem_owner/remove", ``, 409},
		"the last owner steps down":        {h.owner, "PUT", "/v1/members/mem_owner/role", `{"role":"admin"}`, 409},
		"another tenant's owner removes":   {stranger, "POST", "/v1/members/" + string(admin.Member) + "/remove", ``, 404},
		"another tenant's owner, by name":  {stranger, "POST", "/v1/members/Ada/remove", ``, 404},
		"another tenant's owner widens":    {stranger, "PUT", "/v1/members/" + string(approver.Member) + "/role", `{"role":"owner"}`, 404},
		"another tenant's owner, a token":  {stranger, "POST", "/v1/tokens", `{"member":"` + string(admin.Member) + `"}`, 404},
		"another tenant's owner revokes":   {stranger, "POST", "/v1/tokens/" + string(admin.Token) + "/revoke", ``, 404},
		"the same name":                    {h.owner, "POST", "/v1/members", `{"name":"aDA","role":"auditor"}`, 409},
		"no name":                          {h.owner, "POST", "/v1/members", `{"role":"auditor"}`, 400},
		"a name that is an id":             {h.owner, "POST", "/v1/members", `{"name":"mem_owner","role":"auditor"}`, 400},
		"a name that cannot be printed":    {h.owner, "POST", "/v1/members", `{"name":"a\u0000b","role":"auditor"}`, 400},
		"a name that turns around":         {h.owner, "POST", "/v1/members", `{"name":"a\u202eb","role":"auditor"}`, 400},
		"a name of colours":                {h.owner, "POST", "/v1/members", `{"name":"\u001b[31mred","role":"auditor"}`, 400},
		"spaces around a name":             {h.owner, "POST", "/v1/members", `{"name":" Ada","role":"auditor"}`, 400},
		"a long name":                      {h.owner, "POST", "/v1/members", `{"name":"` + strings.Repeat("x", 101) + `","role":"auditor"}`, 400},
		"no address":                       {h.owner, "POST", "/v1/members", `{"name":"X","email":"x","role":"auditor"}`, 400},
		"an address with a header":         {h.owner, "POST", "/v1/members", `{"name":"X","email":"a@b.c\r\nBcc: d@e.f","role":"auditor"}`, 400},
		"an address with a name":           {h.owner, "POST", "/v1/members", `{"name":"X","email":"X <a@b.c>","role":"auditor"}`, 400},
		"a role that is none":              {h.owner, "POST", "/v1/members", `{"name":"X","role":"root"}`, 400},
		"an id of one's own":               {h.owner, "POST", "/v1/members", `{"name":"X","role":"auditor","member":"mem_x"}`, 400},
		"a token that expired":             {h.owner, "POST", "/v1/members", `{"name":"X","role":"auditor","expires_at":"2020-01-01T00:00:00Z"}`, 400},
		"a long reason":                    {h.owner, "POST", "/v1/members/Eve/remove", `{"reason":"` + strings.Repeat("x", 5000) + `"}`, 400},
		"a wildcard":                       {h.owner, "POST", "/v1/members/mem_*/remove", ``, 404},
		"everybody":                        {h.owner, "POST", "/v1/members/%3E/remove", ``, 404},
		"a subject":                        {h.owner, "POST", "/v1/members/mem_a.added/remove", ``, 404},
		"nobody's role":                    {h.owner, "PUT", "/v1/members/mem_none/role", `{"role":"admin"}`, 404},
		"a role without a role":            {h.owner, "PUT", "/v1/members/Eve/role", `{}`, 400},
		"erasing somebody who is a member": {h.owner, "POST", "/v1/members/Eve/erase", ``, 409},
	} {
		if got := h.call(t, c.with, c.method, c.path, c.body); got.status != c.status {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	for _, secret := range []string{admin.Secret, approver.Secret, h.owner} {
		if got := h.call(t, secret, "GET", "/v1/whoami", ""); got.status != 200 {
			t.Errorf("somebody is out: %+v", got)
		}
	}
	// Of names that were not taken nothing is left.
	kv, err := h.bus.Boot.JS.KeyValue(t.Context(), "people")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(t.Context())
	persons := 0
	for _, key := range keys {
		if strings.HasPrefix(key, "person.") {
			persons++
		}
	}
	if err != nil || persons != 2 {
		t.Errorf("%d names are kept, %v", persons, err)
	}
}

// Two owners remove each other at the same moment, over the API: one is left.
func TestOwnersRemoveEachOtherAtOnce(t *testing.T) {
	h := start(t)
	a, b := h.add(t, "Ada", member.Owner), h.add(t, "Bob", member.Owner)
	statuses := make([]int, 2)
	var wait sync.WaitGroup
	for i, c := range []struct{ with, name string }{{a.Secret, "Bob"}, {b.Secret, "Ada"}} {
		wait.Go(func() { statuses[i] = h.call(t, c.with, "POST", "/v1/members/"+c.name+"/remove", "").status })
	}
	wait.Wait()
	if statuses[0]+statuses[1] != 200+401 {
		t.Errorf("%v", statuses)
	}
	working := 0
	for _, secret := range []string{a.Secret, b.Secret} {
		if h.call(t, secret, "GET", "/v1/whoami", "").status == 200 {
			working++
		}
	}
	if working != 1 {
		t.Errorf("%d of the two are left", working)
	}
}

// Of two instances, the one that was asked answers when the other refuses too; one that does not answer is named.
func TestEveryInstanceRefuses(t *testing.T) {
	h := start(t)
	other := &house{bus: h.bus, peersFake: h.peersFake}
	other.run(t, Config{Listen: "127.0.0.1:0", MaxTails: 30, MCPCalls: 64, MCPRate: 50, MCPBurst: 100, MCPSessions: 2000, MCPHeldWait: time.Second, OwnerTokenFile: h.tokenFile})
	eve, bob := h.add(t, "Eve", member.Approver), h.add(t, "Bob", member.Approver)
	second := h.newToken(t, bob.Secret, "")
	for _, k := range []made{eve, bob, second} {
		buskit.Eventually(t, "the other instance lets them in", func() bool { return other.call(t, k.Secret, "GET", "/v1/whoami", "").status == 200 })
	}
	ends := other.openEnd(t, eve.Secret)
	var done ask.InForce
	got := h.call(t, h.owner, "POST", "/v1/members/Eve/remove", "")
	got.decode(t, &done)
	if got.status != 200 || done.Heard != 2 || len(done.Fenced) != 0 {
		t.Errorf("%+v", got)
	}
	other.refused(t, eve.Secret)
	if last := <-ends; !strings.Contains(last, "unauthenticated") {
		t.Errorf("the stream of the other instance ended with %q", last)
	}
	h.call(t, h.owner, "POST", "/v1/tokens/"+string(second.Token)+"/revoke", "").decode(t, &done)
	if done.Heard != 2 {
		t.Errorf("%+v", done)
	}
	other.refused(t, second.Secret)

	// An instance that hangs: it has a view, and answers nothing.
	hangs := h.bus.Conn(t, string(schemas.Gateway))
	if _, err := bus.AskRewind(t.Context(), hangs); err != nil {
		t.Fatal(err)
	}
	got = h.call(t, h.owner, "POST", "/v1/members/Bob/remove", "")
	done = ask.InForce{}
	got.decode(t, &done)
	if got.status != 200 || done.Heard != 2 || len(done.Fenced) != 1 || done.Fenced[0] != "gateway/"+hangs.Life() {
		t.Errorf("%+v", got)
	}
	other.refused(t, bob.Secret)
}
