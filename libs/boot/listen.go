package boot

import (
	"errors"
	"net"

	"github.com/execwarden/execwarden/libs/problem"
)

// Listen opens an address that a setting names, and says why when it cannot: most often somebody listens there already.
func Listen(setting, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err == nil {
		return l, nil
	}
	why := err
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		why = op.Err // the rest repeats the address
	}
	return nil, problem.Wrap(err, problem.Invalid, "%s %s cannot be listened at: %v", setting, address, why)
}
