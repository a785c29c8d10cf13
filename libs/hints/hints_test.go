package hints_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/hints"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A call that is followed twice, as after a client came back, wakes who came last, also once the other has left.
func TestFollowedTwice(t *testing.T) {
	b := buskit.Start(t)
	ear := hints.New(b.Conn(t, string(schemas.Gateway)))
	deaf, err := ear.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer deaf()
	_, first := ear.Wait("call_1")
	wake, second := ear.Wait("call_1")
	first()
	teller := b.Conn(t, string(schemas.Toolbroker))
	var hint bus.Hint
	buskit.Eventually(t, "who came last is woken", func() bool {
		teller.SendHint(ear.Subject("call_1"), bus.Hint{Call: "call_1", Seq: 7}) // a hint may be lost, so it is sent again
		select {
		case hint = <-wake:
			return true
		case <-time.After(10 * time.Millisecond):
			return false
		}
	})
	if hint.Seq != 7 {
		t.Errorf("%+v", hint)
	}
	second()
}
