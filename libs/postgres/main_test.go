package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain also plays the process that is killed: a test starts its own binary with the variable set.
func TestMain(m *testing.M) {
	if dir := os.Getenv("POSTGRES_TEST_VICTIM"); dir != "" {
		server, err := Start(context.Background(), Config{DataDir: dir}, slog.New(slog.DiscardHandler))
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(server.URL())
		select {} // until the kill
	}
	goleak.VerifyTestMain(m)
}
