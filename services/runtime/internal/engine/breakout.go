//go:build breakout

package engine

import (
	"runtime"
	"syscall"
	"unsafe"

	"github.com/dop251/goja"
)

// breakout gives a script what an attacker has after an escape from the engine: the global syscall(number, ...args).
// Strings are passed as pointers to their bytes and a zero. It gives [result, errno].
func (m *machine) breakout() error {
	return m.vm.Set("syscall", func(c goja.FunctionCall) goja.Value {
		var args [6]uintptr
		var held [][]byte
		for i := range min(len(c.Arguments)-1, len(args)) {
			switch v := c.Arguments[i+1].Export().(type) {
			case string:
				text := append([]byte(v), 0)
				held = append(held, text)
				args[i] = uintptr(unsafe.Pointer(&text[0]))
			case int64:
				args[i] = uintptr(v)
			}
		}
		result, _, errno := syscall.RawSyscall6(uintptr(c.Argument(0).ToInteger()), args[0], args[1], args[2], args[3], args[4], args[5])
		runtime.KeepAlive(held)
		return m.vm.NewArray(int64(result), int64(errno))
	})
}
