package engine

import (
	"embed"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/dop251/goja"
	"github.com/dop251/goja/parser"
)

//go:embed js/*.js
var preludes embed.FS

// loadPreludes gives the VM its globals. core comes first and takes what the others need before anything can change
// it; harden comes right after; start, last, has the way in and out.
func (m *machine) loadPreludes() error {
	host := m.host()
	core, err := m.prelude("core", host)
	if err != nil {
		return err
	}
	var last goja.Value
	for _, name := range []string{
		"exceptions", "harden", "regexps", "builtins", "iterators", "locale", "timers", "console", "encoding", "crypto", "url", "clone", "fetch", "tools", "artifacts", "start",
	} {
		if last, err = m.prelude(name, host, core); err != nil {
			return err
		}
	}
	way, ok := last.(*goja.Object)
	if !ok {
		return errors.New("prelude start gives no object")
	}
	m.start, _ = goja.AssertFunction(way.Get("start"))
	m.describe, _ = goja.AssertFunction(way.Get("describe"))
	m.input, _ = goja.AssertFunction(way.Get("input"))
	return m.breakout()
}

// prelude runs one file, which is a function, with args.
func (m *machine) prelude(name string, args ...goja.Value) (goja.Value, error) {
	programs, err := compiled()
	if err != nil {
		return nil, err
	}
	made, err := m.vm.RunProgram(programs[name])
	if err != nil {
		return nil, fmt.Errorf("prelude %s: %w", name, err)
	}
	load, ok := goja.AssertFunction(made)
	if !ok {
		return nil, fmt.Errorf("prelude %s is no function", name)
	}
	value, err := load(goja.Undefined(), args...)
	if err != nil {
		return nil, fmt.Errorf("prelude %s: %w", name, err)
	}
	return value, nil
}

// compiled are the preludes as programs, which the rehearsal's VM and the script's share.
var compiled = sync.OnceValues(func() (map[string]*goja.Program, error) {
	files, err := preludes.ReadDir("js")
	if err != nil {
		return nil, err
	}
	programs := map[string]*goja.Program{}
	for _, file := range files {
		source, err := preludes.ReadFile("js/" + file.Name())
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(file.Name(), ".js")
		parsed, err := goja.Parse("prelude/"+name, string(source), parser.WithDisableSourceMaps)
		if err != nil {
			return nil, fmt.Errorf("prelude %s: %w", name, err)
		}
		if programs[name], err = goja.CompileAST(parsed, true); err != nil {
			return nil, fmt.Errorf("prelude %s: %w", name, err)
		}
	}
	return programs, nil
})
