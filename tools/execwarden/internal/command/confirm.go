package command

import (
	"bufio"
	"context"
	"errors"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/execwarden/execwarden/libs/problem"
)

// errDeclined is the answer no.
var errDeclined = errors.New("nothing was done")

// confirm asks a question, unless it was answered beforehand by --yes. Without a terminal nobody is there to answer,
// and a program that waits for ever is worse than one that says so.
func (a *app) confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	terminal, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(terminal.Fd())) {
		return problem.New(problem.Invalid, "this asks before it does anything, and there is no terminal to ask at; add --yes to go ahead")
	}
	a.note("%s [y/N]", question)
	answer := make(chan string, 1)
	go func() { // a read from a terminal cannot be interrupted; the program's end ends it
		line, _ := bufio.NewReader(terminal).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case got := <-answer:
		if got == "y" || got == "yes" {
			return nil
		}
		return errDeclined
	}
}
