package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/duplex"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/visit"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

func (a *app) envPreviewCommand() *cobra.Command {
	v := client.Visit{Way: visit.Preview}
	listen := ""
	cmd := &cobra.Command{
		Use:   "preview NAME PORT",
		Short: "Look at a port that commands listen on in an attached machine",
		Args:  cobra.ExactArgs(2),
		Long: exits(`Listens on this machine and carries each connection to 127.0.0.1:PORT as the commands of the attachment see it: a web server that an
agent began, for example. It goes on until it is interrupted, the attachment ends, or the connection was cut for 5 minutes. Who looked,
at which port, and how many bytes, is recorded. Whoever reaches the listening address reaches the port: keep it at 127.0.0.1.`,
			map[int]string{3: "your role, or the machine's policy (rule preview), does not allow it", 4: "nothing that fits is attached"}),
		Example: "  execwarden env preview builder 3000\n  execwarden env preview builder 3000 --listen 127.0.0.1:3000",
		RunE: func(cmd *cobra.Command, args []string) error {
			port, err := strconv.Atoi(args[1])
			if err != nil || port < 1 || port > 65535 {
				return usage("PORT is 1 to 65535")
			}
			v.Port = port
			return a.preview(cmd.Context(), args[0], v, listen)
		},
	}
	cmd.Flags().StringVar(&v.Volume, "volume", "", "the volume, by name (default: main)")
	cmd.Flags().StringVar(&v.Session, "session", "", "in place of a volume: the one that is attached to this session")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address to listen on here; port 0 is any that is free")
	cmd.MarkFlagsMutuallyExclusive("volume", "session")
	return cmd
}

func (a *app) preview(ctx context.Context, env string, v client.Visit, listen string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	admitted, err := c.AdmitVisit(ctx, env, v)
	if err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", listen)
	if err != nil {
		return usage("--listen: %v", err)
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	held := duplex.New(func([]byte) error { return errors.New("not there yet") }, 0, 0)
	joined := make(chan error, 1)
	go func() {
		joined <- c.VisitStream(work, env, admitted, connector.OpenVisit{}, held, func() {
			fmt.Fprintf(a.out, "http://%s\n", l.Addr())
			a.note("port %d of %s is there until this is interrupted", v.Port, env)
		}, func(error) { a.note("the connection was cut; it is tried again") })
	}()
	var streams sync.WaitGroup
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for number := 1; ; number++ {
			conn, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			streams.Go(func() { a.previewConn(work, c, env, admitted, number, conn) })
		}
	}()
	select {
	case <-ctx.Done():
		held.Finish(nil)
		drain, done := context.WithTimeout(work, leaveWithin)
		_ = held.Drain(drain) // the machine ends it later by itself
		done()
		err = ctx.Err()
	case err = <-joined:
		joined <- nil
	}
	_ = l.Close()
	<-accepted
	cancel()
	<-joined
	streams.Wait()
	return err
}

// previewConn carries one connection. Both ends wait for each other: nothing piles up in between.
func (a *app) previewConn(ctx context.Context, c *client.Client, env string, admitted ask.AdmittedVisit, number int, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // nobody reads or writes it then
	end := duplex.New(func([]byte) error { return errors.New("not there yet") }, 0, 0)
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		defer cancel()
		if err := c.VisitStream(ctx, env, admitted, connector.OpenVisit{Stream: number}, end, func() {}, func(error) {}); err != nil {
			a.note("a connection: %s", messageOf(err))
		}
	}()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		buffer := make([]byte, duplex.MaxPiece)
		for {
			n, err := conn.Read(buffer)
			if n > 0 && end.Write(ctx, duplex.Piece{Stream: connector.VisitInput, Data: buffer[:n]}) != nil {
				return
			}
			if err != nil {
				end.Finish(nil)
				_ = end.Drain(ctx)
				return
			}
		}
	}()
	for {
		p, err := end.Next(ctx)
		if err != nil {
			break
		}
		if _, err := conn.Write(p.Data); err != nil {
			_ = conn.Close() // nobody hears what would still come
			break
		}
		end.Took(p.End)
	}
	if half, ok := conn.(*net.TCPConn); ok {
		_ = half.CloseWrite() // one that is gone reads no more either
	}
	<-sent
	cancel()
	<-joined
	_ = conn.Close()
}
