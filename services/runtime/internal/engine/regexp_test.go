package engine

import "testing"

func TestSuited(t *testing.T) {
	for _, c := range []struct{ pattern, flags, want string }{
		{`a`, "u", `a`},
		{`\\p{L}`, "u", `\\p{L}`}, // an escaped backslash, then letters
		{`\p{L}`, "", `\p{L}`},
		{`\p{L}`, "u", `(?=)\p{L}`},
		{`\\\p{L}`, "u", `(?=)\\\p{L}`},
		{`[\P{Script=Greek}\d]`, "u", `(?=)[\P{Greek}\d]`},
		{`\p{gc=Lu}\p{sc=Latin}`, "giu", `(?=)\p{Lu}\p{Latin}`},
		{`\p{Script_Extensions=X}`, "u", `(?=)\p{Script_Extensions=X}`},
		{`\`, "u", `\`},
		{`x\p`, "u", `(?=)x\p`},
		{`(?=)\p{L}`, "u", `(?=)\p{L}`},
		{`(?<n>a)`, "u", `(?=)(?<n>a)`},
		{`(?<n>a)`, "", `(?<n>a)`},
		{`a*`, "", `a*`},
		{`a*`, "g", `(?=)a*`},
		{`(?:$|[ab])`, "g", `(?=)(?:$|[ab])`},
		{`a+|b{2}`, "g", `a+|b{2}`},
		{`^\s+|\s+$`, "g", `^\s+|\s+$`},
		{`$`, "gm", `$`}, // nothing is all that it matches
		{`\b`, "g", `\b`},
		{`(?!a)b*`, "g", `(?!a)b*`}, // goes there by itself
		{`[`, "gu", `[`},
	} {
		if got := suited(c.pattern, c.flags); got != c.want {
			t.Errorf("/%s/%s becomes %s, want %s", c.pattern, c.flags, got, c.want)
		}
	}
}
