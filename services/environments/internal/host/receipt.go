package host

import (
	"encoding/json"
	"errors"
	"os"

	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/problem"
)

// readReceipt gives a receipt, and nil when there is none.
func readReceipt(path string) (*receipt, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var r receipt
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the order's receipt cannot be read")
	}
	return &r, nil
}

// writeReceipt writes it whole and durable, or not at all.
func writeReceipt(path string, what any) error {
	raw, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return keyfile.Write(path, string(raw))
}
