package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dop251/goja"
	"github.com/dop251/goja/parser"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// machine is one VM with its one script.
type machine struct {
	conn *wire.Conn
	vm   *goja.Runtime
	run  wire.Run

	places   places        // of the script
	start    goja.Callable // js/start.js
	describe goja.Callable
	input    goja.Callable

	// The loop's own. Only the goroutine that runs the script touches them.
	rng      *rand.ChaCha8
	seq      int            // the last request's number
	calls    int            // tool calls issued, those that were refused here too; so the next three
	fetches  int            // fetches issued
	searches int            // searches issued
	keeps    int            // operations on artifacts issued
	open     map[int]waiter // requests without a reply
	keeping  int            // of these, operations on artifacts
	early    []wire.Reply   // that came while keeping, and are not looked at before it is over
	clock    clock
	logged   int // bytes of console lines
	value    json.RawMessage
	fail     *wire.Fail
	settled  bool // value or fail is final
	rejected []*goja.Promise
	warnings []string

	replies <-chan wire.Reply
	meter   meter
	// stopped is why the script was interrupted. It stays: the VM forgets an interrupt when an entry ends.
	stopped atomic.Pointer[string]
	said    atomic.Bool // the last word: it is said once, by the loop or by the watcher
}

// waiter is a request's two ways back into the script.
type waiter struct {
	resolve, reject goja.Callable
	keeps           bool // for an operation on artifacts
}

func newMachine(conn *wire.Conn, replies <-chan wire.Reply) (*machine, error) {
	m := &machine{
		conn:    conn,
		vm:      goja.New(),
		open:    map[int]waiter{},
		replies: replies,
		meter:   newMeter(),
	}
	// The default parser reads files that a sourceMappingURL comment names.
	m.vm.SetParserOptions(parser.WithDisableSourceMaps)
	m.vm.SetPromiseRejectionTracker(m.trackRejection)
	if err := m.loadPreludes(); err != nil {
		return nil, err
	}
	return m, nil
}

// execute takes the script to its end and says why it has no value, or nil.
func (m *machine) execute() *wire.Fail {
	m.rng = rand.NewChaCha8(seedOf(m.run.Seed))
	random := rand.New(m.rng)
	m.vm.SetRandSource(random.Float64)
	m.clock.begin = time.UnixMilli(m.run.NowMilli)
	m.vm.SetTimeSource(func() time.Time { return m.clock.now() })
	m.vm.SetMaxCallStackSize(m.run.Limits.Stack)

	var program *goja.Program
	if fail := m.enter(func() error {
		var refused error
		program, m.places, refused = compile(m.run.Source)
		return refused
	}); fail != nil {
		return fail
	}
	if fail := m.enter(func() error {
		_, err := m.input(goja.Undefined(), m.vm.ToValue(string(m.run.Input)))
		return err
	}); fail != nil {
		return fail
	}
	if fail := m.enter(func() error {
		main, err := m.vm.RunProgram(program)
		if err != nil {
			return err
		}
		_, err = m.start(goja.Undefined(), main)
		return err
	}); fail != nil {
		return fail
	}
	if fail := m.loop(); fail != nil {
		return fail
	}
	return m.fail
}

// enter is the one way into the VM. Whatever happens inside, and however the engine ends it, is a Fail here.
func (m *machine) enter(f func() error) (fail *wire.Fail) {
	if fail := m.whyStopped(); fail != nil {
		return fail
	}
	m.meter.enter()
	defer m.meter.leave()
	defer func() {
		if p := recover(); p != nil {
			fail = m.fault(p)
		}
	}()
	return m.verdict(f())
}

// verdict turns an entry's error into a Fail.
func (m *machine) verdict(err error) *wire.Fail {
	var (
		refused     *wire.Fail
		interrupted *goja.InterruptedError
		overflow    *goja.StackOverflowError
		thrown      *goja.Exception
	)
	switch {
	case err == nil:
		// An interrupt that arrives between two instructions of the last job is seen here.
		return m.whyStopped()
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &interrupted):
		if fail := m.whyStopped(); fail != nil {
			return fail
		}
	case errors.As(err, &overflow):
		return &wire.Fail{Code: codeStack, Name: "RangeError",
			Message: fmt.Sprintf("calls are nested more than %d deep", m.run.Limits.Stack)}
	case errors.As(err, &thrown):
		return m.uncaught(thrown.Value())
	}
	fmt.Fprintf(os.Stderr, "engine: %T\n", err)
	return &wire.Fail{Code: codeFault, Message: "the engine gave up on the script"}
}

// uncaught describes a thrown value. Describing runs the script's getters, so it is an entry of its own.
func (m *machine) uncaught(value goja.Value) *wire.Fail {
	var fail *wire.Fail
	_, err := m.describe(goja.Undefined(), value, m.vm.ToValue(func(c goja.FunctionCall) goja.Value {
		fail = failure(c, m.places, m.run.Tools)
		return goja.Undefined()
	}))
	if err != nil || fail == nil {
		if stopped := m.whyStopped(); stopped != nil {
			return stopped
		}
		return &wire.Fail{Code: codeException, Message: "an error that cannot be shown"}
	}
	return fail
}

// stop interrupts the script, for good.
func (m *machine) stop(code string) {
	m.stopped.CompareAndSwap(nil, &code)
	m.vm.Interrupt(code)
}

func (m *machine) whyStopped() *wire.Fail {
	code := m.stopped.Load()
	if code == nil {
		return nil
	}
	return limitReached(*code, m.run.Limits)
}

// fault is a panic of the engine. The one kind that a script causes at will is a size that Go refuses.
func (m *machine) fault(p any) *wire.Fail {
	text := fmt.Sprint(p)
	for _, size := range []string{"makeslice", "out of range", "too large", "Repeat"} {
		if strings.Contains(text, size) {
			return limitReached(codeMemory, m.run.Limits)
		}
	}
	fmt.Fprintf(os.Stderr, "engine panic: %s\n%s", text, debug.Stack())
	return &wire.Fail{Code: codeFault, Message: "the engine failed on the script"}
}

// seedOf spreads a seed over the generator's key.
func seedOf(seed uint64) (key [32]byte) {
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return key
}
