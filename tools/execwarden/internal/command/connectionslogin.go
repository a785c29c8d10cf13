package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

func (a *app) connectionsLoginCommand() *cobra.Command {
	agent := ""
	cmd := &cobra.Command{
		Use:   "login CONNECTION",
		Short: "Log in to the provider of a connection, in a browser",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Begins a login to the provider of a connection with oauth.flow authorization_code, writes the address to open in a
browser on standard output, and waits until the login is finished there. The address works once, for ten minutes; give
it to nobody else: their account would be connected. The tokens go to the tool broker only.

On a connection with oauth.per_agent each agent has an account of its own: --agent connects that one, and without it the login is
the connection's own, which only lists the tools.`,
			map[int]string{0: "logged in", 1: "the login failed, or the API cannot be reached", 4: "there is no such connection or agent", 6: "nobody finished the login in time"}),
		Example: "  execwarden connections login tickets\n  execwarden connections login tickets --agent laptop\n  execwarden connections login tickets -o jsonl | jq -r .url",
		RunE: func(cmd *cobra.Command, args []string) error {
			var of id.Agent
			if agent != "" {
				var err error
				if of, err = id.Named[id.Agent](agent); err != nil {
					return usage("--agent: %v", err)
				}
			}
			return a.connectionLogin(cmd.Context(), args[0], of)
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "whose account it is to be (default: the connection's own)")
	return cmd
}

func (a *app) connectionLogin(ctx context.Context, name string, of id.Agent) error {
	asking, c, done, err := a.asking(ctx, "asking the provider how to log in", time.Minute)
	if err != nil {
		return err
	}
	at, err := c.Position(asking) // before it begins: its end must not be missed
	var begun ask.LoginBegun
	if err == nil {
		begun, err = c.BeginLogin(asking, name, of)
	}
	done()
	if err != nil {
		return err
	}
	a.note("open this address in a browser, and log in there by %s:", begun.ExpiresAt.Local().Format(time.TimeOnly))
	if err := a.printer().One(begun, func(w io.Writer) { fmt.Fprintln(w, begun.URL) }); err != nil {
		return err
	}
	waiting, cancel := a.within(ctx, time.Until(begun.ExpiresAt))
	defer cancel()
	defer a.progress("waiting for the login in the browser")()
	w := &loginWatch{app: a, attempt: begun.Attempt}
	_, err = c.Tail(waiting, client.Filter{Kind: (connection.LoginChanged{}).Kind()}, at, w)
	switch {
	case errors.Is(err, errEnough) && w.end.Failed:
		return problem.New(problem.Denied, "the login failed: %s", w.end.Reason)
	case errors.Is(err, errEnough):
		a.note("%s is logged in at %s", name, w.end.Issuer)
		return nil
	case waiting.Err() != nil && ctx.Err() == nil:
		return problem.Wrap(err, problem.Timeout, "nobody finished the login in time; begin it again: execwarden connections login %s", name)
	}
	return err
}

// loginWatch waits for the end of one login.
type loginWatch struct {
	app     *app
	attempt id.Login
	end     connection.LoginChanged
}

// Event implements client.Reader.
func (w *loginWatch) Event(e client.Event, _ client.Cursor) error {
	envelope, err := e.Envelope()
	if err != nil {
		return nil // not one of ours
	}
	if ev, err := envelope.Decode(); err == nil {
		if end, ok := ev.(connection.LoginChanged); ok && end.Attempt == w.attempt {
			w.end = end
			return errEnough
		}
	}
	return nil
}

// Notice implements client.Reader.
func (w *loginWatch) Notice(d problem.Detail) { w.app.note("notice: %s", d.Message) }

// Gap implements client.Reader.
func (w *loginWatch) Gap(d problem.Detail) { w.app.note("gap: %s", d.Message) }
