package engine

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// FuzzSource: any text is one function that does not leave its wrapper, with its lines where they were, or a failure
// that says what is wrong with it. Reading it does nothing else.
func FuzzSource(f *testing.F) {
	for _, source := range []string{
		``, `return 1`, `1 + 1`, `const x: number = 1; x`, `async () => { await 1 }`, `async function main() { return 1 }`,
		"export default async function () { return 4 }", "const two = 2\nexport default () => two", "import x from 'x'\nx()",
		"```ts\nconst n: number = 5\nreturn n\n```", "\n\n```js\n1\n```\n", "```\n```", "```ts",
		`}); for(;;){} (async function(){`, "}); let x: number = 1; (async function(){", "})//", "}, x = (async function(){", "}/*", "`${", "/*", "//",
		"\n})()\n(async function(){", "});(async function(){", "})\n\n(async function(){", "<!--", "-->", "#!/bin/sh\n1", "\u2028})", "'use strict'; with (a) b",
		"enum E { A } for await (const x of y) x", "class A { #x = 1; static { this.#x } accessor y = 1 }", `/\p{L}/u`, "label: for (;;) break label",
		"function f<T>(x: T): T { return x }\nf<string>('y')", "a<b>(c)", "let é = '😀'\r\né\ré", "//# sourceMappingURL=/etc/passwd", "return\n1", "await 1; return 2", "yield", "new.target", "super.x",
	} {
		f.Add(source, uint8(0))
		f.Add(source, uint8(1))
	}
	f.Fuzz(func(t *testing.T, source string, at uint8) {
		if len(source) > 4<<10 {
			return
		}
		isOneFunction(t, source)
		keepsItsLines(t, source, int(at))
		opensNoMap(t, source)
	})
}

func isOneFunction(t *testing.T, source string) {
	program, _, err := compile(source)
	if err != nil {
		isSaid(t, source, err)
		return
	}
	vm := goja.New()
	before := vm.GlobalObject().GetOwnPropertyNames()
	hung := time.AfterFunc(5*time.Second, func() { vm.Interrupt("hung") })
	defer hung.Stop()
	main, err := vm.RunProgram(program)
	if err != nil {
		t.Fatalf("making the function runs something: %v", err)
	}
	if _, ok := goja.AssertFunction(main); !ok {
		t.Fatal("there is no function")
	}
	for _, name := range vm.GlobalObject().GetOwnPropertyNames() {
		if !slices.Contains(before, name) && !strings.HasPrefix(name, "__") { // the helpers of lowering
			t.Fatalf("the script's %s is outside of its function", name)
		}
	}
}

// isSaid is what an author can act on.
func isSaid(t *testing.T, source string, err error) {
	var fail *wire.Fail
	if !errors.As(err, &fail) {
		t.Fatalf("%T: %v", err, err)
	}
	if !slices.Contains([]string{codeSyntax, codeUnsupported, codeRegexp}, fail.Code) || fail.Message == "" {
		t.Fatalf("%+v", fail)
	}
	if fail.Line < 0 || fail.Col < 0 || fail.Line > 1+len(lineEnd.FindAllString(source, -1)) || (fail.Line > 0) != (fail.Col > 0) {
		t.Fatalf("%+v is at no place in the script", fail)
	}
}

// keepsItsLines puts a name of ours at the start of a line and looks where it is said to be.
func keepsItsLines(t *testing.T, source string, where int) {
	const mark = "mark_7f"
	if strings.Contains(source, mark) {
		return
	}
	starts := []int{0}
	for _, end := range lineEnd.FindAllStringIndex(source, -1) {
		starts = append(starts, end[1])
	}
	line := where % len(starts)
	parsed, at, refused := read(source[:starts[line]]+mark+"();\n"+source[starts[line]:], where%2 == 1)
	if refused != nil {
		return
	}
	eachName(reflect.ValueOf(parsed.Body), func(name *ast.Identifier) {
		if name.Name != mark {
			return
		}
		p := parsed.File.Position(int(name.Idx) - parsed.File.Base())
		if l, c := at.of(p.Line, p.Column); l != line+1 || c != 1 {
			t.Fatalf("what is at %d:1 is said to be at %d:%d", line+1, l, c)
		}
	})
}

func eachName(v reflect.Value, visit func(*ast.Identifier)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return
		}
		if name, ok := v.Interface().(*ast.Identifier); ok {
			visit(name)
			return
		}
		eachName(v.Elem(), visit)
	case reflect.Slice:
		for i := range v.Len() {
			eachName(v.Index(i), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type().Field(i).Name != "DeclarationList" { // which repeats what is in the body
				eachName(v.Field(i), visit)
			}
		}
	}
}

// opensNoMap: a comment that names a file is a comment like any other.
func opensNoMap(t *testing.T, source string) {
	_, _, err := compile(source + "\n//# sourceMappingURL=/no/such/file")
	_, _, same := compile(source + "\n//# anotherComment=/no/such/file")
	if (err == nil) != (same == nil) {
		t.Fatalf("with a source map: %v; with another comment: %v", err, same)
	}
}
