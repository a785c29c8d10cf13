package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

// issuing is where a new token goes, and how long it lasts.
type issuing struct {
	file    string
	expires time.Duration
}

func (i *issuing) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&i.file, "token-out", "", "new file for the token, mode 0600 (default: standard output)")
	cmd.Flags().DurationVar(&i.expires, "expires", 0, "how long the token works, such as 720h (default: for ever, or as long as yours)")
}

func (i *issuing) until(now time.Time) (time.Time, error) {
	switch {
	case i.expires < 0:
		return time.Time{}, usage("--expires %s is in the past", i.expires)
	case i.expires == 0:
		return time.Time{}, nil
	}
	return now.Add(i.expires).UTC().Truncate(time.Second), nil
}

// issue makes a token and hands it out, once. The file is made first: a token that can be written nowhere would work
// and be lost.
func (a *app) issue(i issuing, issue func() (client.Issued, error)) error {
	k, err := i.issue(issue)
	if err != nil {
		return err
	}
	err = a.printer().One(k, func(w io.Writer) {
		if k.Secret != "" {
			fmt.Fprintln(w, render.Inline(k.Secret))
		}
	})
	if err == nil && a.printer().Format.ForPeople() {
		a.noteIssued(k)
	}
	return err
}

func (a *app) noteIssued(k client.Issued) {
	whose := fmt.Sprintf("%s %s, role %s", k.Name, k.Member, k.Role)
	if k.Agent != "" {
		whose = "agent " + id.Name(k.Agent)
	}
	a.note("%s for %s%s; it is not shown again", k.Token, whose, lasts(k.ExpiresAt))
}

// issue is the making of a token. In a file it is nowhere else.
func (i issuing) issue(issue func() (client.Issued, error)) (k client.Issued, err error) {
	var file *os.File
	if i.file != "" {
		if file, err = os.OpenFile(i.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return k, problem.Wrap(err, problem.Invalid, "file %s cannot be made anew (%v)", i.file, errors.Unwrap(err))
		}
	}
	k, err = issue()
	if err == nil && file != nil {
		_, err = io.WriteString(file, k.Secret+"\n")
		err = errors.Join(err, file.Sync())
	}
	if file != nil {
		if err = errors.Join(err, file.Close()); err != nil {
			return k, errors.Join(err, os.Remove(i.file))
		}
		k.Secret = ""
	}
	return k, err
}

func lasts(until time.Time) string {
	if until.IsZero() {
		return ""
	}
	return ", until " + render.Stamp(until)
}
