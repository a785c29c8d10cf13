package engine

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/dop251/goja"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// The codes that the engine gives. The pool adds those that only it can know.
const (
	codeSyntax      = "syntax_error"
	codeUnsupported = "unsupported_syntax"
	codeRegexp      = "unsupported_regexp"
	codeException   = "exception"
	codeCPU         = "cpu_limit"
	codeMemory      = "memory_limit"
	codeStack       = "stack_overflow"
	codeDeadlock    = "deadlock"
	codeOutput      = "output_too_large"
	codeToolUnknown = "tool_unknown"
	codeTooMany     = "too_many_calls"
	codeArgs        = "args_too_large"
	codeNoFetch     = "fetch_disabled"
	codeFault       = "sandbox_fault"
)

const (
	maxMessage = 4 << 10
	maxName    = 128
)

// limitReached is the failure of a script that was stopped.
func limitReached(code string, l wire.Limits) *wire.Fail {
	message := "the script was stopped"
	switch code {
	case codeCPU:
		message = fmt.Sprintf("the script used its %s of processor time", l.CPU)
	case codeMemory:
		message = fmt.Sprintf("the script needs more than its %d MiB of memory", l.Heap>>20)
	}
	return &wire.Fail{Code: code, Message: message}
}

// failure reads what js/core.js's describe reports: four strings, made inside the VM.
func failure(c goja.FunctionCall, at places, tools []string) *wire.Fail {
	code, name, message, stack := c.Argument(0).String(), c.Argument(1).String(), c.Argument(2).String(), c.Argument(3).String()
	if code == "" {
		code = codeException
	}
	if name == "ReferenceError" {
		message = hinted(message, tools)
	}
	fail := &wire.Fail{Code: cut(code, maxName), Name: cut(name, maxName), Message: cut(message, maxMessage)}
	fail.Line, fail.Col = position(stack, at)
	return fail
}

// cut shortens s to at most n bytes, at a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

var frame = regexp.MustCompile(regexp.QuoteMeta(scriptName) + `:(\d+):(\d+)`)

// position is the innermost place in the script that a stack names.
func position(stack string, at places) (line, col int) {
	found := frame.FindStringSubmatch(stack)
	if found == nil {
		return 0, 0
	}
	line, _ = strconv.Atoi(found[1])
	col, _ = strconv.Atoi(found[2])
	return at.of(line, col)
}
