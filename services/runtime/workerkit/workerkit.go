// Package workerkit gives tests a jsworker program to run scripts with.
package workerkit

import (
	"testing"

	"github.com/execwarden/execwarden/libs/testkit/progkit"
)

// BuildWorker gives the path of a jsworker program that lives as long as the test.
func BuildWorker(t testing.TB) string {
	t.Helper()
	return progkit.Build(t, "github.com/execwarden/execwarden/services/runtime/cmd/jsworker")
}
