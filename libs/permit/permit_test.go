package permit_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/key"
)

var raw64 = base64.RawURLEncoding

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func keyOf(b byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, ed25519.SeedSize))
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

// published is the broker's key, signed by a root.
func published(root, private ed25519.PrivateKey) key.Published {
	p := key.Published{Key: "key_broker", Purpose: permit.Purpose, Public: public(private), NotBefore: now}
	p.Signature = ed25519.Sign(root, p.SignedBytes())
	return p
}

func claims() permit.Claims {
	return permit.Claims{Audience: call.Upstream, Tenant: "tnt_a", Run: "run_1", Call: "call_1", Tool: "github.add_issue_comment", ArgsDigest: permit.Digest([]byte("{}")),
		Grant: "grt_1", Requested: 41, Control: 7, IssuedAt: now, ExpiresAt: now.Add(5 * time.Minute)}
}

func signed(t interface{ Fatal(...any) }, private ed25519.PrivateKey, c permit.Claims) string {
	text, err := permit.NewSigner("key_broker", private).Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func ring(t *testing.T) *permit.Keyring {
	t.Helper()
	r := permit.NewKeyring(public(keyOf(1)))
	if err := r.Add(published(keyOf(1), keyOf(2))); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerify(t *testing.T) {
	r, c := ring(t), claims()
	got, err := r.Verify(signed(t, keyOf(2), c), call.Upstream, now)
	if err != nil || got != c {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, x := range map[string]struct {
		text     string
		audience call.Route
		at       time.Time
		want     problem.Code
	}{
		"at its last moment":      {signed(t, keyOf(2), c), call.Upstream, c.ExpiresAt, ""},
		"a clock behind":          {signed(t, keyOf(2), c), call.Upstream, now.Add(-30 * time.Second), ""},
		"another executor":        {signed(t, keyOf(2), c), call.Script, now, problem.Denied},
		"no executor":             {signed(t, keyOf(2), c), "", now, problem.Denied},
		"expired":                 {signed(t, keyOf(2), c), call.Upstream, c.ExpiresAt.Add(1), problem.Expired},
		"expired, and not for us": {signed(t, keyOf(2), c), call.Exec, c.ExpiresAt.Add(1), problem.Denied},
		"from the future":         {signed(t, keyOf(2), c), call.Upstream, now.Add(-31 * time.Second), problem.Denied},
		"another key":             {signed(t, keyOf(3), c), call.Upstream, now, problem.Denied},
		"nothing":                 {"", call.Upstream, now, problem.Denied},
		"two parts":               {"key_broker.e30", call.Upstream, now, problem.Denied},
		"four parts":              {signed(t, keyOf(2), c) + ".", call.Upstream, now, problem.Denied},
		"no signature":            {strings.Join(strings.Split(signed(t, keyOf(2), c), ".")[:2], ".") + ".", call.Upstream, now, problem.Denied},
		"too long":                {strings.Repeat("x", 9<<10), call.Upstream, now, problem.Denied},
		"a line break inside":     {signed(t, keyOf(2), c) + "\n", call.Upstream, now, problem.Denied},
	} {
		if _, err := r.Verify(x.text, x.audience, x.at); problem.CodeOf(err) != x.want {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
	// A signer gone wrong cannot make a permit that outlives the rule.
	long := c
	long.ExpiresAt = now.Add(permit.MaxLife + 1)
	if _, err := permit.NewSigner("key_broker", keyOf(2)).Sign(long); err == nil {
		t.Error("a permit of more than 15 minutes is signed")
	}
	long.ExpiresAt = now
	if _, err := permit.NewSigner("key_broker", keyOf(2)).Sign(long); err == nil {
		t.Error("a permit of no time is signed")
	}
	if _, err := r.Verify(handSigned(t, keyOf(2), `{"aud":"upstream","iat":"2026-11-30T12:00:00Z","exp":"2026-11-30T13:00:00Z"}`), call.Upstream, now); problem.CodeOf(err) != problem.Denied {
		t.Errorf("an hour-long permit: %v", err)
	}
	if _, err := r.Verify(handSigned(t, keyOf(2), `no JSON`), call.Upstream, now); problem.CodeOf(err) != problem.Denied {
		t.Errorf("signed garbage: %v", err)
	}
}

// Any byte of a permit that is changed, added or left out makes it none.
func TestEveryByteCounts(t *testing.T) {
	r := ring(t)
	text := signed(t, keyOf(2), claims())
	for i := range text {
		if _, err := r.Verify(text[:i]+text[i+1:], call.Upstream, now); err == nil {
			t.Errorf("without byte %d it is good", i)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		b := rapid.Byte().Draw(t, "byte")
		changed := text[:i] + string([]byte{b}) + text[i+1:]
		if changed == text {
			return
		}
		if _, err := r.Verify(changed, call.Upstream, now); err == nil {
			t.Fatalf("byte %d may be %q", i, b)
		}
		if _, err := r.Verify(text[:i]+string([]byte{b})+text[i:], call.Upstream, now); err == nil {
			t.Fatalf("%q may be put in front of byte %d", b, i)
		}
	})
}

func TestWhoseKeysCount(t *testing.T) {
	good := published(keyOf(1), keyOf(2))
	for name, change := range map[string]func(*key.Published){
		"signed by another root": func(p *key.Published) { *p = published(keyOf(9), keyOf(2)) },
		"signed by itself":       func(p *key.Published) { *p = published(keyOf(2), keyOf(2)) },
		"not signed":             func(p *key.Published) { p.Signature = nil },
		"another public half":    func(p *key.Published) { p.Public = public(keyOf(3)) },
		"another name":           func(p *key.Published) { p.Key = "key_other" },
		"another time":           func(p *key.Published) { p.NotBefore = p.NotBefore.Add(1) },
		"a short public half":    func(p *key.Published) { p.Public = p.Public[:31] },
		"no public half":         func(p *key.Published) { p.Public = nil },
	} {
		p := good
		change(&p)
		r := permit.NewKeyring(public(keyOf(1)))
		if err := r.Add(p); problem.CodeOf(err) != problem.Denied {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := r.Verify(signed(t, keyOf(2), claims()), call.Upstream, now); problem.CodeOf(err) != problem.Denied {
			t.Errorf("%s: its permits count: %v", name, err)
		}
	}
	other := key.Published{Key: "key_broker", Purpose: "checkpoint", Public: public(keyOf(2)), NotBefore: now}
	other.Signature = ed25519.Sign(keyOf(1), other.SignedBytes())
	r := permit.NewKeyring(public(keyOf(1)))
	if err := r.Add(other); err != nil {
		t.Error(err)
	}
	if _, err := r.Verify(signed(t, keyOf(2), claims()), call.Upstream, now); problem.CodeOf(err) != problem.Denied {
		t.Errorf("a key for another purpose signs permits: %v", err)
	}
	// A process that was not given the root key trusts nobody, and goes on living.
	if err := permit.NewKeyring(nil).Add(good); problem.CodeOf(err) != problem.Denied {
		t.Errorf("without a root key: %v", err)
	}
	// A caller that keeps the event's bytes cannot change the ring by them.
	p := published(keyOf(1), keyOf(2))
	if err := r.Add(p); err != nil {
		t.Fatal(err)
	}
	p.Public[0] ^= 1
	if _, err := r.Verify(signed(t, keyOf(2), claims()), call.Upstream, now); err != nil {
		t.Error(err)
	}
}

func TestCovers(t *testing.T) {
	c := claims()
	r := call.Requested{Run: c.Run, Call: c.Call, Tool: c.Tool, ArgsDigest: c.ArgsDigest}
	if err := c.Covers(c.Tenant, r, 41); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*id.Tenant, *call.Requested, *uint64){
		"tenant": func(n *id.Tenant, _ *call.Requested, _ *uint64) { *n = "tnt_b" },
		"run":    func(_ *id.Tenant, r *call.Requested, _ *uint64) { r.Run = "run_2" },
		"call":   func(_ *id.Tenant, r *call.Requested, _ *uint64) { r.Call = "call_2" },
		"tool":   func(_ *id.Tenant, r *call.Requested, _ *uint64) { r.Tool = "github.delete" },
		"digest": func(_ *id.Tenant, r *call.Requested, _ *uint64) { r.ArgsDigest = "" },
		"place":  func(_ *id.Tenant, _ *call.Requested, n *uint64) { *n = 42 },
	} {
		tenant, x, seq := c.Tenant, r, uint64(41)
		change(&tenant, &x, &seq)
		if err := c.Covers(tenant, x, seq); problem.CodeOf(err) != problem.Denied {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

func TestCanonicalArgs(t *testing.T) {
	for raw, want := range map[string]string{
		`{}`:                                  `{}`,
		" {\n\t\"b\" : 1 , \"a\" : [ ] }\r\n": `{"b":1,"a":[]}`, // the caller's order stays
		`{"n":1.0,"e":1E5,"big":123456789012345678901234567890}`: `{"n":1.0,"e":1E5,"big":123456789012345678901234567890}`,
		`{"a":{"x":1},"b":{"x":2}}`:                              `{"a":{"x":1},"b":{"x":2}}`, // one name in two objects
		`{"A":1,"a":2}`:                                          `{"A":1,"a":2}`,
		`{"":0}`:                                                 `{"":0}`,
		`{"html":"<b>&\u2028` + "\u2028" + `"}`:                  `{"html":"\u003cb\u003e\u0026\u2028\u2028"}`,
	} {
		got, err := permit.CanonicalArgs(json.RawMessage(raw))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", raw, got, err)
		}
	}
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	if _, err := permit.CanonicalArgs(json.RawMessage(deep(64))); err != nil {
		t.Error(err)
	}
	for name, raw := range map[string]string{
		"nothing": "", "space": " ", "null": "null", "an array": "[]", "text": `"{}"`, "a number": "1", "half": `{"a":`, "an open array": `{"a":[`,
		"two objects": "{}{}", "more after it": "{} x", "a second brace": "{}}", "a comma too much": `{"a":1,}`, "a comment": `{/**/}`, "single quotes": `{'a':1}`,
		"a name twice":            `{"a":1,"a":1}`,
		"a name twice, escaped":   `{"a":1,"\u0061":2}`,
		"a name twice, inside":    `{"x":[{"a":1},{"a":1,"b":2,"a":3}]}`,
		"a name twice, deep":      `{"x":{"y":[[[{"a":1,"a":1}]]]}}`,
		"NaN":                     `{"a":NaN}`,
		"a leading zero":          `{"a":01}`,
		"too deep":                deep(65),
		"too deep, in arrays":     `{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + "}",
		"deep enough for a stack": `{"a":` + strings.Repeat("[", 100_000),
		"a control character":     "{\"a\":\"\x01\"}",
	} {
		if got, err := permit.CanonicalArgs(json.RawMessage(raw)); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %.60s, %v", name, got, err)
		}
	}
	for name, raw := range map[string]string{
		"large":              `{"a":"` + strings.Repeat("x", permit.MaxArgs) + `"}`,
		"large when escaped": `{"a":"` + strings.Repeat("<", permit.MaxArgs/4) + `"}`,
	} {
		if _, err := permit.CanonicalArgs(json.RawMessage(raw)); problem.CodeOf(err) != problem.TooLarge {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is signed is what is stored: writing canonical arguments into an event changes none of their bytes.
func FuzzCanonicalArgs(f *testing.F) {
	for _, s := range []string{`{"a":"<&>"}`, `{"a":[1,{"b":null}]}`, "{\"a\":\"\u2028\xff\"}", `{"a":1,"a":2}`, " {} "} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := permit.CanonicalArgs(raw)
		if err != nil {
			return
		}
		stored, err := json.Marshal(call.Args{Args: got})
		if err != nil {
			t.Fatal(err)
		}
		var back call.Args
		if err := json.Unmarshal(stored, &back); err != nil {
			t.Fatal(err)
		}
		if permit.Digest(back.Args) != permit.Digest(got) {
			t.Errorf("%q is stored as %q", got, back.Args)
		}
		again, err := permit.CanonicalArgs(got)
		if err != nil || !bytes.Equal(again, got) {
			t.Errorf("%q becomes %q, %v", got, again, err)
		}
	})
}

func TestDigest(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"", "ab"}, {"ab", ""}, {"b", "a"}, {"a\x00\x00\x00\x00\x00\x00\x00\x01b"}} {
		var raw [][]byte
		for _, p := range parts {
			raw = append(raw, []byte(p))
		}
		d := permit.Digest(raw...)
		if before, twice := seen[d]; twice {
			t.Errorf("%q and %q have one digest", before, parts)
		}
		seen[d] = parts
	}
	// Stored digests have to be found right by the next release too.
	if got := permit.Digest([]byte("{}")); got != "7cf4b3ea3b7fb829169af19d641905eb04c1a23d6057cbe10a975ba5bcfaa21e" {
		t.Errorf("digests changed: %s", got)
	}
}

func handSigned(t *testing.T, private ed25519.PrivateKey, body string) string {
	t.Helper()
	signed := "key_broker." + raw64.EncodeToString([]byte(body))
	return signed + "." + raw64.EncodeToString(ed25519.Sign(private, []byte(signed)))
}

func TestCanonicalInput(t *testing.T) {
	for raw, want := range map[string]string{
		"": "",
		` { "inputResponses" : {"it":{"action":"accept"}} , "requestState":"<s>" } `: `{"inputResponses":{"it":{"action":"accept"}},"requestState":"\u003cs\u003e"}`,
		`{"inputResponses":{}}`: `{"inputResponses":{}}`,
		`{}`:                    `{}`,
	} {
		if got, err := permit.CanonicalInput(json.RawMessage(raw)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", raw, got, err)
		}
	}
	for name, raw := range map[string]string{
		"null":                   `null`,
		"a list":                 `[]`,
		"an argument":            `{"uri":"file:///closed"}`,
		"a member spelt another": `{"InputResponses":{}}`,
		"responses twice":        `{"inputResponses":{},"inputResponses":{"it":1}}`,
		"one response twice":     `{"inputResponses":{"it":1,"it":2}}`,
		"responses in a list":    `{"inputResponses":[]}`,
		"no responses":           `{"inputResponses":null}`,
		"a state that is none":   `{"requestState":null}`,
		"a state that is not":    `{"requestState":{"a":1}}`,
	} {
		if got, err := permit.CanonicalInput(json.RawMessage(raw)); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if _, err := permit.CanonicalInput(json.RawMessage(`{"requestState":"` + strings.Repeat("x", permit.MaxArgs) + `"}`)); problem.CodeOf(err) != problem.TooLarge {
		t.Error(err)
	}
}

// Whatever a call is made with, another one has another digest.
func TestArgsDigest(t *testing.T) {
	seen := map[string]string{}
	for _, a := range []call.Args{
		{Args: json.RawMessage(`{}`)}, {Args: json.RawMessage(`{}`), Input: json.RawMessage(`{}`)}, {Args: json.RawMessage(`{}`), Input: json.RawMessage(`{"requestState":"a"}`)},
		{Args: json.RawMessage(`{"requestState":"a"}`)}, {Args: json.RawMessage(`{"requestState":"a"}`), Input: json.RawMessage(`{}`)}, {Args: json.RawMessage(`{}{}`)},
	} {
		raw, err := json.Marshal(struct{ Args, Input []byte }{a.Args, a.Input})
		if err != nil {
			t.Fatal(err)
		}
		digest := permit.ArgsDigest(a)
		if other, ok := seen[digest]; ok {
			t.Errorf("%s has the digest of %s", raw, other)
		}
		seen[digest] = string(raw)
	}
	if permit.ArgsDigest(call.Args{Args: json.RawMessage(`{}`)}) != permit.Digest([]byte(`{}`)) {
		t.Error("the digest of arguments alone is another")
	}
}
