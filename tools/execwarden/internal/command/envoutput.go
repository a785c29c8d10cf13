package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) envOutputCommand() *cobra.Command {
	follow := false
	cmd := &cobra.Command{
		Use:   "output CALL",
		Short: "Print what a command on a machine printed, byte for byte",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Prints the output of a call of machine.exec: what it wrote to standard output goes there, what it wrote to standard error
goes there. It is what the machine has sent so far; with --follow it goes on until the command has ended. What the machine did not
keep is told of on standard error. The call's id is in the run's timeline; a visit's
(vis_...), whose shell a person had, in the events. With -o jsonl each piece is one line, its bytes in base64.`, nil),
		Example: "  execwarden env output call_28b48c74ef5b8815baf2b46a454ede10 --follow",
		RunE: func(cmd *cobra.Command, args []string) error {
			which := id.Call(args[0])
			if _, err := id.Parse[id.Visit](args[0]); err == nil {
				// Kept as a call's output is.
			} else if _, err := id.Parse[id.Call](args[0]); err != nil {
				return usage("%v", err)
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			ctx, cancel := a.within(cmd.Context(), 0)
			defer cancel()
			end, err := a.printOutput(ctx, c, which, follow)
			if err == nil && end != nil {
				fmt.Fprintln(a.err, render.Inline(sentenceOf(end))) // a machine's own words
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the command has ended")
	return cmd
}

// outputWait is how long one question waits for output.
const outputWait = 10 * time.Second

func (a *app) printOutput(ctx context.Context, c *client.Client, which id.Call, follow bool) (end *machine.Exec, err error) {
	after, wait := uint64(0), time.Duration(0)
	at := int64(0)
	if follow {
		wait = outputWait
	}
	for {
		page, err := c.Output(ctx, which, after, wait)
		if err != nil {
			return nil, err
		}
		for _, p := range page.Pieces {
			if p, at = p.From(at); p.Empty() {
				continue
			}
			if err := a.printPiece(p); err != nil {
				return nil, err
			}
		}
		if page.End != nil || page.Next == after && !follow {
			return page.End, nil
		}
		after = page.Next
	}
}

func (a *app) printPiece(p ask.OutputPiece) (err error) {
	switch {
	case a.flags.output == render.JSONL:
		return a.printer().JSONLine(p)
	case p.Stream == "gap":
		_, err = fmt.Fprintf(a.err, "[... %d bytes were not kept on the machine ...]\n", p.Lost)
	case p.Stream == "stderr":
		err = printRaw(a.err, p.Data)
	default:
		err = printRaw(a.out, p.Data)
	}
	return err
}

// printRaw writes bytes as they are, but at a terminal: what a command printed could move its cursor, or write into what
// somebody is about to read.
func printRaw(to io.Writer, data []byte) (err error) {
	if terminal(to) {
		_, err = io.WriteString(to, render.Visible(string(data)))
		return err
	}
	_, err = to.Write(data)
	return err
}

func sentenceOf(e *machine.Exec) string {
	text := e.Reason
	switch {
	case e.Code != nil:
		text += fmt.Sprintf(" with %d", *e.Code)
	case e.Signal != "":
		text += " by " + e.Signal
	}
	return fmt.Sprintf("%s, %s, %s", text, render.Count(int(e.Bytes), "byte"), e.Isolation)
}
