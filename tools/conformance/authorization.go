package conformance

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// announced is the suite's scenario for what an authorization server says of itself. Its other one, the code grant, waits for a
// person at the consent page: services/gateway tests have the SDK's own client go through that.
const announced = "authorization-server-metadata-endpoint"

// authorization runs the suite's leg against the authorization server.
func (s *site) authorization(ctx context.Context, t tree, keep string) error {
	dir := filepath.Join(cmp.Or(keep, s.dir), "suite-authorization")
	if err := os.RemoveAll(dir); err != nil { // of the run before
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	out, err := t.command(ctx, "conformance", "authorization", "--url", s.warden.At().API, "--scenario", announced, "-o", dir).CombinedOutput()
	code, err := exitCode(err)
	if err != nil {
		return fmt.Errorf("the suite did not end: %w: %.2000s", err, out)
	}
	l := &leg{revision: "authorization", required: []string{announced}, failed: map[string][]string{}, ran: map[string]bool{}, code: code}
	if err := l.read(dir); err != nil {
		return err
	}
	l.write(s.out)
	return l.fault()
}
