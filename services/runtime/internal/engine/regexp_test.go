package engine

import "testing"

func TestWithProperties(t *testing.T) {
	for pattern, want := range map[string]string{
		`a`:                       `a`,
		`\\p{L}`:                  `\\p{L}`, // an escaped backslash, then letters
		`\p{L}`:                   `(?=)\p{L}`,
		`\\\p{L}`:                 `(?=)\\\p{L}`,
		`[\P{Script=Greek}\d]`:    `(?=)[\P{Greek}\d]`,
		`\p{gc=Lu}\p{sc=Latin}`:   `(?=)\p{Lu}\p{Latin}`,
		`\p{Script_Extensions=X}`: `(?=)\p{Script_Extensions=X}`,
		`\`:                       `\`,
		`x\p`:                     `(?=)x\p`,
	} {
		if got := withProperties(pattern); got != want {
			t.Errorf("%s becomes %s, want %s", pattern, got, want)
		}
	}
}
