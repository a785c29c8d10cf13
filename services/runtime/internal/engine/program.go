package engine

import (
	"errors"
	"regexp"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/parser"
	"github.com/evanw/esbuild/pkg/api"
	"github.com/go-sourcemap/sourcemap"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

const (
	scriptName = "script.ts"
	opening    = "(async function(){" // on the script's first line, so that lines stay as they were sent
	closing    = "\n})"
	unbalanced = "the brackets of the script do not match: something is not closed, or is closed twice"
)

// compile makes a program whose value is an async function: the script's body. It accepts what models write: a body
// with return and await, one expression, a function, an export default, any of them inside a Markdown fence, in
// TypeScript or JavaScript.
//
// The script is wrapped before it is lowered, and the wrapped text has to be one function again: a brace that closes
// the wrapper early is an error, not a way out of it.
func compile(source string) (*goja.Program, places, error) {
	for lowered := false; ; lowered = true {
		parsed, at, refused := read(source, lowered)
		if refused != nil {
			return nil, at, refused
		}
		program, err := goja.CompileAST(parsed, false)
		switch {
		case err == nil:
			return program, at, nil
		case at.mapped || !strings.Contains(err.Error(), "not supported yet"):
			return nil, at, syntaxFail(err, at)
		}
		// The engine reads async generators and does not compile them.
	}
}

// read is compile up to the tree, lowered if the engine cannot read it otherwise.
func read(source string, lowered bool) (*ast.Program, places, *wire.Fail) {
	body := withoutExport(withoutFence(source))
	at := places{body: body}
	wrapped := opening + body + closing
	parsed, err := parse(wrapped)
	if err != nil || lowered || looksTyped(body) {
		plain, refused := lower(wrapped, at)
		if refused != nil {
			return nil, at, refused
		}
		parsed, at.mapped = plain, true
	}
	main, ok := mainOf(parsed)
	if !ok {
		if fail := noModules(at); fail != nil { // import.meta makes a variable
			return nil, at, fail
		}
		return nil, at, &wire.Fail{Code: codeSyntax, Name: "SyntaxError", Message: unbalanced}
	}
	giveLastValue(main)
	rewriteRegexps(parsed, body)
	return parsed, at, nil
}

func parse(source string) (*ast.Program, error) {
	return parser.ParseFile(nil, scriptName, source, 0, parser.WithDisableSourceMaps)
}

// lower strips the types and lowers what the engine does not have. It costs a millisecond, so plain scripts skip it.
func lower(wrapped string, at places) (*ast.Program, *wire.Fail) {
	out := api.Transform(wrapped, api.TransformOptions{
		Loader:         api.LoaderTS,
		Target:         api.ES2017,
		Sourcefile:     scriptName,
		Sourcemap:      api.SourceMapExternal,
		SourcesContent: api.SourcesContentExclude,
		LogLevel:       api.LogLevelSilent,
		// An unused expression or import is the author's business.
		TreeShaking: api.TreeShakingFalse,
	})
	if len(out.Errors) > 0 {
		return nil, transformFail(out.Errors[0], at)
	}
	positions, err := readMap(out.Map)
	if err != nil {
		return nil, &wire.Fail{Code: codeFault, Message: "the compiler's positions cannot be read"}
	}
	parsed, err := parse(string(out.Code))
	if err != nil {
		return nil, unsupported(err, positions, at)
	}
	parsed.File.SetSourceMap(positions)
	return parsed, nil
}

// mainOf is the one function that a wrapped script is.
func mainOf(p *ast.Program) (*ast.FunctionLiteral, bool) {
	var found *ast.FunctionLiteral
	for _, s := range p.Body {
		e, ok := s.(*ast.ExpressionStatement)
		if !ok {
			if _, empty := s.(*ast.EmptyStatement); empty {
				continue
			}
			// Lowering may put its helpers before the script.
			if _, helper := s.(*ast.VariableStatement); helper && found == nil {
				continue
			}
			return nil, false
		}
		f, ok := e.Expression.(*ast.FunctionLiteral)
		if !ok || found != nil {
			return nil, false
		}
		found = f
	}
	return found, found != nil
}

var (
	fence         = regexp.MustCompile("^\\s*```[A-Za-z]*[ \\t]*(\\n)")
	fenceEnd      = regexp.MustCompile("\\n[ \\t]*```\\s*$")
	exportDefault = regexp.MustCompile(`(?m)^export[ \t]+default[ \t]+`)
	unknownFlags  = regexp.MustCompile(`Invalid flags supplied to RegExp constructor '(\w+)'`)
	typed         = regexp.MustCompile(`[^=]>\s*[(` + "`" + `]`)
	moduleSyntax  = regexp.MustCompile(`(?m)(?:^|;)[ \t]*(import|export)\b|\b(import)(?:\s*\(|\.meta\b)`)
)

// withoutFence removes a Markdown fence but not its line.
func withoutFence(s string) string {
	start := fence.FindStringIndex(s)
	if start == nil {
		return s
	}
	s = strings.Repeat("\n", strings.Count(s[:start[1]], "\n")) + s[start[1]:]
	if end := fenceEnd.FindStringIndex(s); end != nil {
		s = s[:end[0]]
	}
	return s
}

// withoutExport makes a default export the body's value, in as many columns.
func withoutExport(s string) string {
	at := exportDefault.FindAllStringIndex(s, 2)
	if len(at) != 1 {
		return s
	}
	const word = "return "
	return s[:at[0][0]] + word + strings.Repeat(" ", at[0][1]-at[0][0]-len(word)) + s[at[0][1]:]
}

// looksTyped finds what means one thing in JavaScript and another in TypeScript: f<T>(x) is two comparisons.
func looksTyped(s string) bool { return typed.MatchString(s) }

// giveLastValue returns a body's last expression, or its only function, if the body returns nothing itself.
func giveLastValue(main *ast.FunctionLiteral) {
	list := main.Body.List
	for len(list) > 0 {
		if _, empty := list[len(list)-1].(*ast.EmptyStatement); !empty {
			break
		}
		list = list[:len(list)-1]
	}
	if len(list) == 0 || returns(list) {
		return
	}
	last := len(list) - 1
	switch s := list[last].(type) {
	case *ast.ExpressionStatement:
		list[last] = &ast.ReturnStatement{Return: s.Idx0(), Argument: s.Expression}
	case *ast.FunctionDeclaration:
		if last == 0 {
			list[last] = &ast.ReturnStatement{Return: s.Idx0(), Argument: s.Function}
		}
	}
}

// returns reports whether a return statement of this function, not of one inside it, is among the statements.
func returns(list []ast.Statement) bool {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ReturnStatement:
			return true
		case *ast.BlockStatement:
			if s != nil && returns(s.List) {
				return true
			}
		case *ast.IfStatement:
			if returns([]ast.Statement{s.Consequent, s.Alternate}) {
				return true
			}
		case *ast.ForStatement:
			if returns([]ast.Statement{s.Body}) {
				return true
			}
		case *ast.ForInStatement:
			if returns([]ast.Statement{s.Body}) {
				return true
			}
		case *ast.ForOfStatement:
			if returns([]ast.Statement{s.Body}) {
				return true
			}
		case *ast.WhileStatement:
			if returns([]ast.Statement{s.Body}) {
				return true
			}
		case *ast.DoWhileStatement:
			if returns([]ast.Statement{s.Body}) {
				return true
			}
		case *ast.LabelledStatement:
			if returns([]ast.Statement{s.Statement}) {
				return true
			}
		case *ast.WithStatement:
			if returns([]ast.Statement{s.Body}) {
				return true
			}
		case *ast.TryStatement:
			inner := []ast.Statement{s.Body, s.Finally}
			if s.Catch != nil {
				inner = append(inner, s.Catch.Body)
			}
			if returns(inner) {
				return true
			}
		case *ast.SwitchStatement:
			for _, c := range s.Body {
				if returns(c.Consequent) {
					return true
				}
			}
		}
	}
	return false
}

// unsupported is what esbuild takes and the engine's parser does not.
func unsupported(err error, positions *sourcemap.Consumer, at places) *wire.Fail {
	if fail := noModules(at); fail != nil {
		return fail
	}
	fail := &wire.Fail{Code: codeUnsupported, Name: "SyntaxError", Message: "the engine does not have this syntax: " + firstLine(err)}
	var list parser.ErrorList
	if errors.As(err, &list) && len(list) > 0 {
		fail.Message = "the engine does not have this syntax: " + cut(list[0].Message, maxMessage)
		if _, _, line, col, ok := positions.Source(list[0].Position.Line, list[0].Position.Column); ok {
			at.mapped = true
			fail.Line, fail.Col = at.of(line, col)
		}
	}
	return fail
}

// noModules is the failure of a script that does not compile and has an import or an export. One that compiles has
// them in its strings.
func noModules(at places) *wire.Fail {
	found := moduleSyntax.FindStringSubmatchIndex(at.body)
	if found == nil {
		return nil
	}
	fail := &wire.Fail{Code: codeUnsupported, Name: "SyntaxError",
		Message: "modules are not available: what a script has is global, its tools are in tools, and it has no import and at most one export default"}
	fail.Line, fail.Col = at.offset(max(found[2], found[4]))
	return fail
}

// transformFail is esbuild's message, at the place in the script.
func transformFail(m api.Message, at places) *wire.Fail {
	if fail := noModules(at); fail != nil {
		return fail
	}
	fail := &wire.Fail{Code: codeSyntax, Name: "SyntaxError", Message: cut(m.Text, maxMessage)}
	if m.Location != nil {
		fail.Line, fail.Col = at.of(m.Location.Line, m.Location.Column+1)
	}
	switch {
	case strings.Contains(m.Text, "not supported yet"), strings.Contains(m.Text, "configured target environment"):
		fail.Code = codeUnsupported
	case m.Location != nil && at.after(m.Location.Line): // it names the wrapper's brace
		fail.Message = unbalanced
	}
	return fail
}

// syntaxFail is what the engine's own compiler refuses after the parser let it pass.
func syntaxFail(err error, at places) error {
	fail := &wire.Fail{Code: codeSyntax, Name: "SyntaxError", Message: firstLine(err)}
	var compiler *goja.CompilerSyntaxError
	if errors.As(err, &compiler) && compiler.File != nil {
		p := compiler.File.Position(compiler.Offset)
		fail.Line, fail.Col = at.of(p.Line, p.Column)
		fail.Message = cut(compiler.Message, maxMessage)
	}
	if strings.Contains(fail.Message, "unicode category") {
		fail.Code = codeRegexp
	}
	if flag := unknownFlags.FindStringSubmatch(fail.Message); flag != nil {
		fail.Code = codeRegexp
		fail.Message = "the flag " + flag[1] + " of regular expressions is not available: there are g, i, m, s, u and y"
	}
	return fail
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return cut(line, maxMessage)
}
