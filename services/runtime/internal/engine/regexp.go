package engine

import (
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/parser"
)

// otherMatcher sends a pattern to the engine's second matcher, the one with look-around, by a look-ahead that matches
// anywhere. js/regexps.js does not show it.
const otherMatcher = "(?=)"

// suited is the pattern for which the engine gives what JavaScript means. Its first matcher, which takes time in
// proportion to the text, is wrong without a word about some patterns, and the second is right:
//
//   - Unicode properties: the first takes \p{L} for the letters "p{L}".
//   - Named groups with the flag u: the first forgets the names.
//   - With the flag g, patterns that match something or nothing: the first overlooks a nothing right after a something.
func suited(pattern, flags string) string {
	if strings.HasPrefix(pattern, otherMatcher) {
		return pattern
	}
	named, unicode := pattern, strings.Contains(flags, "u")
	if unicode {
		named = bareProperties(pattern)
	}
	if unicode && (named != pattern || hasProperty(pattern) || strings.Contains(pattern, "(?<")) || strings.Contains(flags, "g") && sometimesEmpty(pattern, flags) {
		return otherMatcher + named
	}
	return pattern
}

// eachEscape visits the escapes of a pattern by the character after the backslash.
func eachEscape(pattern string, visit func(at int)) {
	for i := 0; i+1 < len(pattern); i++ {
		if pattern[i] == '\\' {
			i++
			visit(i)
		}
	}
}

func hasProperty(pattern string) (has bool) {
	eachEscape(pattern, func(at int) { has = has || pattern[at] == 'p' || pattern[at] == 'P' })
	return has
}

// bareProperties takes the names away that the second matcher does not know: Greek for Script=Greek.
func bareProperties(pattern string) string {
	var out strings.Builder
	done := 0
	eachEscape(pattern, func(at int) {
		if pattern[at] != 'p' && pattern[at] != 'P' {
			return
		}
		for _, property := range []string{"{Script=", "{sc=", "{General_Category=", "{gc="} {
			if strings.HasPrefix(pattern[at+1:], property) {
				out.WriteString(pattern[done:at+1] + "{")
				done = at + 1 + len(property)
				return
			}
		}
	})
	return out.String() + pattern[done:]
}

// sometimesEmpty reports whether a pattern of the first matcher matches both nothing and something.
func sometimesEmpty(pattern, flags string) bool {
	first, err := parser.TransformRegExp(pattern, strings.Contains(flags, "s"), strings.Contains(flags, "u"))
	if err != nil {
		return false // the second matcher's already, or no pattern
	}
	tree, err := syntax.Parse(first, syntax.Perl)
	return err == nil && canBeEmpty(tree) && consumes(tree)
}

func canBeEmpty(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune) == 0
	case syntax.OpNoMatch, syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return false
	case syntax.OpRepeat:
		return re.Min == 0 || canBeEmpty(re.Sub[0])
	case syntax.OpCapture, syntax.OpPlus:
		return canBeEmpty(re.Sub[0])
	case syntax.OpConcat:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !canBeEmpty(sub) })
	case syntax.OpAlternate:
		return slices.ContainsFunc(re.Sub, canBeEmpty)
	}
	return true // stars, options and places
}

func consumes(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpLiteral, syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true
	}
	return slices.ContainsFunc(re.Sub, consumes)
}

// aboutFlags finds what may be a literal with the flag u or g.
var aboutFlags = regexp.MustCompile(`/[dgimsuvy]*[gu]`)

// rewriteRegexps makes the literals of a program suited. It walks the tree only if the text can hold one of concern.
func rewriteRegexps(program *ast.Program, source string) {
	if !aboutFlags.MatchString(source) {
		return
	}
	eachRegexp(reflect.ValueOf(program.Body), func(literal *ast.RegExpLiteral) {
		literal.Pattern = suited(literal.Pattern, literal.Flags)
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
