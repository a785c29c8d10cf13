package command

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/execwarden/execwarden/libs/duplex"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/schemas/visit"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// exitStatus is the exit code of a person's command on a machine.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("the command ended with %d", int(e)) }

func (a *app) envShellCommand() *cobra.Command {
	v := client.Visit{Way: visit.Shell}
	cmd := &cobra.Command{
		Use:   "shell NAME [-- COMMAND...]",
		Short: "Open a shell on an attached machine, in the cage that agents' commands have",
		Args:  cobra.MinimumNArgs(1),
		Long: exits(`Opens a shell, or a command, on a volume that is attached: with the same files, network and limits as the commands of whoever it is
attached to. At a terminal it has one too; between pipes, input, output and errors are theirs, byte for byte. Who opened it, and from
when to when, is recorded, and so is what it prints (execwarden env output vis_...), with what is typed as far as that is echoed.

Enter ~ . leaves at once, and enter ~ ~ types ~. When the connection is cut it is tried again; after 5 minutes without you the shell is hung
up. Ending the attachment ends it. The exit code is that of the command, 128 and the signal's number when one ended it.`,
			map[int]string{3: "your role, or the machine's policy (rule shell), does not allow it", 4: "nothing that fits is attached"}),
		Example: "  execwarden env shell builder\n  execwarden env shell builder --volume web -- make test\n  tar c src | execwarden env shell builder -- tar x",
		RunE: func(cmd *cobra.Command, args []string) error {
			v.Argv = args[1:]
			return a.shell(cmd.Context(), args[0], v)
		},
	}
	cmd.Flags().StringVar(&v.Volume, "volume", "", "the volume, by name (default: main)")
	cmd.Flags().StringVar(&v.Session, "session", "", "in place of a volume: the one that is attached to this session")
	cmd.MarkFlagsMutuallyExclusive("volume", "session")
	return cmd
}

func (a *app) shell(ctx context.Context, env string, v client.Visit) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	in, ok := a.in.(*os.File)
	v.Terminal = ok && term.IsTerminal(int(in.Fd())) && terminal(a.out)
	open := connector.OpenVisit{}
	if v.Terminal {
		v.Term = a.getenv("TERM")
		open.Rows, open.Cols = sizeOf(in)
	}
	admitted, err := c.AdmitVisit(ctx, env, v)
	if err != nil {
		return err
	}
	if v.Terminal {
		was, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return err
		}
		defer func() { _ = term.Restore(int(in.Fd()), was) }() // one that is gone needs nothing
	}
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	end := duplex.New(func([]byte) error { return errors.New("not there yet") }, 0, 0)
	leave := func() { end.Finish([]byte(connector.VisitLeave)) }
	stop := context.AfterFunc(ctx, func() { // by a signal: the shell is hung up, if that can be said
		leave()
		time.AfterFunc(leaveWithin, func() { cancel(context.Cause(ctx)) })
	})
	defer stop()
	joined := make(chan error, 1)
	opened := make(chan struct{})
	go func() {
		joined <- c.VisitStream(work, env, admitted, open, end, func() { close(opened) }, func(error) {
			a.note("\r[the connection was cut; it is tried again]\r")
		})
	}()
	go func() {
		select {
		case <-opened:
			// Nothing ends a read of a terminal: this goes with the program.
			a.typed(work, end, v.Terminal, leave)
		case <-work.Done():
		}
	}()
	if v.Terminal {
		resized := make(chan os.Signal, 1)
		signal.Notify(resized, unix.SIGWINCH)
		defer signal.Stop(resized)
		go func() {
			for {
				select {
				case <-resized:
					rows, cols := sizeOf(in)
					raw := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, rows), cols)
					_ = end.Write(work, duplex.Piece{Stream: connector.VisitSize, Data: raw}) // its end is the visit's
				case <-work.Done():
					return
				}
			}
		}()
	}
	shown := make(chan error, 1)
	go func() { shown <- a.showVisit(work, end) }()
	select {
	case err = <-shown:
		end.Finish(nil)
		drain, done := context.WithTimeout(work, leaveWithin)
		_ = end.Drain(drain) // the machine has its record without it
		done()
	case err = <-joined:
		joined <- nil
		if err == nil {
			err = context.Cause(work)
		}
	}
	cancel(nil)
	<-joined
	return err
}

// leaveWithin is how long the end of a visit is waited for that the machine may not hear of.
const leaveWithin = 2 * time.Second

func sizeOf(f *os.File) (rows, cols uint16) {
	c, r, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 24, 80
	}
	return uint16(min(max(r, 1), 1000)), uint16(min(max(c, 1), 1000))
}

// typed sends what is typed, or comes from a pipe, until it ends.
func (a *app) typed(ctx context.Context, end *duplex.End, terminal bool, leave func()) {
	buffer := make([]byte, duplex.MaxPiece)
	keys := escape{fresh: true}
	for {
		n, err := a.in.Read(buffer)
		data, leaves := buffer[:n], false
		if terminal {
			data, leaves = keys.take(data)
		}
		if len(data) > 0 && end.Write(ctx, duplex.Piece{Stream: connector.VisitInput, Data: data}) != nil {
			return
		}
		switch {
		case leaves:
			leave()
			return
		case err != nil:
			end.Finish(nil)
			return
		}
	}
}

// escape finds what leaves in what is typed: ~. at the start of a line, as in other remote shells.
type escape struct{ fresh, tilde bool }

func (e *escape) take(typed []byte) (out []byte, leaves bool) {
	for _, b := range typed {
		switch {
		case e.tilde && b == '.':
			return out, true
		case e.tilde && b == '~':
			e.tilde = false
			out = append(out, b)
			continue
		case e.tilde:
			e.tilde = false
			out = append(out, '~', b)
		case e.fresh && b == '~':
			e.tilde, e.fresh = true, false
			continue
		default:
			out = append(out, b)
		}
		e.fresh = b == '\r' || b == '\n'
	}
	return out, false
}

// showVisit writes what comes back as it is, to its end, and gives the command's exit code.
func (a *app) showVisit(ctx context.Context, end *duplex.End) error {
	for {
		p, err := end.Next(ctx)
		if errors.Is(err, io.EOF) {
			return visitEnd(end.Last())
		}
		if err != nil {
			return err
		}
		switch p.Stream {
		case duplex.Gap:
			a.note("\r[... %d bytes were not kept ...]\r", p.Lost)
		case connector.VisitStderr:
			_, err = a.err.Write(p.Data)
		default:
			_, err = a.out.Write(p.Data)
		}
		if err != nil {
			return err
		}
		end.Took(p.End)
	}
}

func visitEnd(word []byte) error {
	var e machine.Exec
	if err := json.Unmarshal(word, &e); err != nil {
		return fmt.Errorf("the machine did not say how the command ended: %w", err)
	}
	switch {
	case e.Signal != "":
		if number := unix.SignalNum(e.Signal); number != 0 {
			return exitStatus(128 + int(number))
		}
		return exitStatus(128)
	case e.Code == nil:
		return fmt.Errorf("how the command ended is not known: %s", e.Reason)
	case *e.Code != 0:
		return exitStatus(*e.Code)
	}
	return nil
}
