package engine

import (
	"reflect"
	"strings"

	"github.com/dop251/goja/ast"
)

// withProperties makes a Unicode pattern with \p{..} mean what it says. The engine's fast matcher takes \p{L} for the
// letters "p{L}" and answers wrongly without a word; an empty look-ahead, which matches anywhere, sends the pattern to
// the other matcher, which knows the properties and refuses those that it does not know. That one wants the bare value
// where JavaScript names the property too: Greek for Script=Greek.
func withProperties(pattern string) string {
	var out strings.Builder
	found := false
	for i := 0; i < len(pattern); i++ {
		out.WriteByte(pattern[i])
		if pattern[i] != '\\' || i+1 == len(pattern) {
			continue
		}
		i++
		out.WriteByte(pattern[i])
		if pattern[i] != 'p' && pattern[i] != 'P' {
			continue
		}
		found = true
		for _, property := range []string{"{Script=", "{sc=", "{General_Category=", "{gc="} {
			if strings.HasPrefix(pattern[i+1:], property) {
				out.WriteByte('{')
				i += len(property)
				break
			}
		}
	}
	if !found {
		return pattern
	}
	return "(?=)" + out.String()
}

// rewriteRegexps applies withProperties to the literals of a program. It walks the tree only if the text can hold one.
func rewriteRegexps(program *ast.Program, source string) {
	if !strings.Contains(source, `\p`) && !strings.Contains(source, `\P`) {
		return
	}
	eachRegexp(reflect.ValueOf(program.Body), func(literal *ast.RegExpLiteral) {
		if strings.Contains(literal.Flags, "u") {
			literal.Pattern = withProperties(literal.Pattern)
		}
	})
}

var regexpLiteral = reflect.TypeFor[*ast.RegExpLiteral]()

// eachRegexp visits the literals below v. The tree has no walker of its own, and a list of its sixty node types here
// would miss the next one silently.
func eachRegexp(v reflect.Value, visit func(*ast.RegExpLiteral)) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		if v.Type() == regexpLiteral {
			visit(v.Interface().(*ast.RegExpLiteral))
			return
		}
		eachRegexp(v.Elem(), visit)
	case reflect.Interface:
		if !v.IsNil() {
			eachRegexp(v.Elem(), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachRegexp(v.Index(i), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				eachRegexp(v.Field(i), visit)
			}
		}
	}
}
