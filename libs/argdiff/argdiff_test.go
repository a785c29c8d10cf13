package argdiff_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/execwarden/execwarden/libs/argdiff"
)

func written(changes []argdiff.Change) string {
	var b strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&b, "%s:", c.Name)
		for _, l := range c.Lines {
			fmt.Fprintf(&b, "|%c%s", l.Op, l.Text)
		}
		b.WriteString(";")
	}
	return b.String()
}

func TestChanges(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`{"a":1}`, `{"a":1}`, ""},
		{`{"a":1,"b":"x"}`, `{"b":"x","a":1}`, ""},
		{`{"a":1}`, `{"a":2,"b":true}`, "a:|-1|+2;b:|+true;"},
		{`{"a":1,"b":2}`, `{"a":1}`, "b:|-2;"},
		{`{"a":"one\ntwo\nthree"}`, `{"a":"one\n2\nthree"}`, "a:| one|-two|+2| three;"},
		{`{"a":"7"}`, `{"a":7}`, `a:|-"7"|+7;`},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, "a:|-9007199254740993|+9007199254740992;"},
		{`{"a":"<b>"}`, `{"a":"\u003cb\u003e"}`, ""},
		{`{"a":{"b":1}}`, `{"a":{"b":2}}`, `a:| {|-  "b": 1|+  "b": 2| };`},
		{`nothing`, `{"a":1}`, ":|-nothing|+{|+  \"a\": 1|+};"},
	} {
		if got := written(argdiff.Changes(json.RawMessage(c.from), json.RawMessage(c.to))); got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.from, c.to, got, c.want)
		}
	}
}

// What is shown leads from the one text to the other, however long they are.
func TestLinesLead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", ""}), 1, 40)
		from, to := lines.Draw(t, "from"), lines.Draw(t, "to")
		if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
			from = strings.Split(strings.Repeat(strings.Join(from, "\n")+"\nx\n", 60), "\n")
			to = strings.Split(strings.Repeat(strings.Join(to, "\n")+"\ny\n", 60), "\n")
		}
		object := func(lines []string) json.RawMessage {
			raw, err := json.Marshal(map[string]string{"t": "> " + strings.Join(lines, "\n")})
			if err != nil {
				t.Fatal(err)
			}
			return raw
		}
		changes := argdiff.Changes(object(from), object(to))
		if strings.Join(from, "\n") == strings.Join(to, "\n") {
			if len(changes) != 0 {
				t.Fatalf("%+v", changes)
			}
			return
		}
		var was, is []string
		for _, l := range changes[0].Lines {
			if l.Op != argdiff.New {
				was = append(was, l.Text)
			}
			if l.Op != argdiff.Gone {
				is = append(is, l.Text)
			}
		}
		if len(changes) != 1 || strings.Join(was, "\n") != "> "+strings.Join(from, "\n") || strings.Join(is, "\n") != "> "+strings.Join(to, "\n") {
			t.Fatalf("%q to %q: %+v", from, to, changes)
		}
	})
}
