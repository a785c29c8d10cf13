package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

// keysWithin is how long rewrapping may take by default: a KMS is asked twice per tenant and service.
const keysWithin = time.Hour

func (a *app) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "keys",
		Short:   "Show and rotate the keys that credentials are sealed under",
		GroupID: groupConfig,
		Args:    cobra.NoArgs,
		Long: exits(`Lists under which master key each instance seals that keeps secrets. Credentials are sealed under their tenant's key, and
tenants' keys under the master key. Rotating the master key, while everything runs:

  execwarden keys rotate     a new master key in the file; earlier ones stay in it and open what they sealed
  execwarden keys rewrap     every tenant's key is sealed under the new one
  execwarden keys prune      the earlier ones leave the file, once nothing needs them`, nil),
		Example: "  execwarden keys\n  execwarden keys rotate && execwarden keys rewrap && execwarden keys prune",
		RunE:    listing(a, "instances", (*client.Client).MasterKeys, instanceGrid),
	}
	cmd.AddCommand(a.keysRotateCommand(), a.keysRewrapCommand(), a.keysPruneCommand(), a.keysRenewCommand())
	return cmd
}

// masterKeyFile is the file that a flag, the environment or the default of `execwarden up` names.
func (a *app) masterKeyFile(flag string) string {
	return or(or(flag, a.getenv("EXECWARDEN_MASTER_KEY_FILE")), filepath.Join(filepath.Dir(ownerTokenFile(os.Geteuid(), a.getenv)), "master.key"))
}

func fileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "file", "", "the master key's file (default: EXECWARDEN_MASTER_KEY_FILE, else master.key in the data directory of execwarden up)")
}

// fileKey is a master key in a file.
type fileKey struct {
	File    string `json:"file"`
	Key     string `json:"key"`
	Seals   bool   `json:"seals"`
	Dropped int    `json:"dropped,omitempty"`
}

func (a *app) keysRotateCommand() *cobra.Command {
	var file string
	var stage, promote bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Put a new master key into its file, and keep the earlier ones",
		Args:  cobra.NoArgs,
		Long: exits(`Puts a new master key first in its file, whole and durably; earlier keys stay and open what they sealed. Running services
look at the file before each use, so they need neither a signal nor a restart.

Where every instance reads the same file, that is all. Where each has a copy (a secret that is mounted, a file in an
image), do it in two steps, so that no instance meets a key that it does not know: --stage, bring the file to every
instance, --promote, bring it again. A container that mounts the one file keeps the old one until it is restarted.

A key in EXECWARDEN_MASTER_KEY is rotated by hand, the new one first, and needs a restart. A KMS rotates by itself.`,
			map[int]string{1: "the file cannot be changed", 3: "not used", 6: "not used"}),
		Example: "  execwarden keys rotate --file /var/lib/execwarden/master.key\n  execwarden keys rotate --stage && kubectl create secret ... && execwarden keys rotate --promote",
		RunE: func(*cobra.Command, []string) error {
			how := vault.Replace
			switch {
			case stage && promote:
				return usage("--stage and --promote are two steps; give one")
			case stage:
				how = vault.Stage
			case promote:
				how = vault.Promote
			}
			path := a.masterKeyFile(file)
			name, err := vault.RotateFile(path, how)
			if err != nil {
				return err
			}
			key := fileKey{File: path, Key: name, Seals: !stage}
			err = a.printer().One(key, func(w io.Writer) {
				if key.Seals {
					fmt.Fprintf(w, "%s seals from now on; earlier keys open what they sealed\n", name)
				} else {
					fmt.Fprintf(w, "%s is staged: it opens, and seals nothing until it is promoted\n", name)
				}
			})
			if err == nil && key.Seals {
				a.note("next: execwarden keys rewrap")
			} else if err == nil {
				a.note("next: bring %s to every instance; then execwarden keys rotate --promote", path)
			}
			return err
		},
	}
	fileFlag(cmd, &file)
	cmd.Flags().BoolVar(&stage, "stage", false, "the new key opens, and seals nothing yet")
	cmd.Flags().BoolVar(&promote, "promote", false, "the staged key seals from now on")
	return cmd
}

func (a *app) keysRewrapCommand() *cobra.Command {
	look := false
	cmd := &cobra.Command{
		Use:   "rewrap",
		Short: "Seal every tenant's key under the master key that seals now",
		Args:  cobra.NoArgs,
		Long: exits(`Asks each service that keeps secrets to seal its tenants' keys under the current master key, and secrets under their
tenant's newest key. It may be stopped, and done again, at any time. Afterwards earlier keys are not needed any more.`,
			map[int]string{1: "something remains sealed under an earlier key, or services seal under different ones; or the API cannot be reached"}),
		Example: "  execwarden keys rewrap\n  execwarden keys rewrap --look -o json | jq '[.services[].remaining] | add'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.allKeys(cmd.Context(), look)
			if err != nil {
				return err
			}
			if err := render.List(a.printer(), "services", all, keysGrid); err != nil {
				return err
			}
			key, err := settled(all)
			if err != nil {
				return err
			}
			return a.agreeOn(cmd.Context(), key)
		},
	}
	cmd.Flags().BoolVar(&look, "look", false, "only count what remains")
	return cmd
}

// allKeys asks every service, and tells how far it is.
func (a *app) allKeys(ctx context.Context, look bool) ([]client.ServiceKeys, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := a.within(ctx, keysWithin)
	defer cancel()
	return c.AllKeys(ctx, look, func(k client.ServiceKeys) {
		if k.Next != "" {
			a.note("%s: %d tenants, %d rewrapped, %d remain ...", k.Service, k.Tenants, k.Keys, k.Remaining)
		}
	})
}

// agreeOn asks every instance whether it seals under key.
func (a *app) agreeOn(ctx context.Context, key string) error {
	ctx, c, done, err := a.asking(ctx, "asking every instance", answersWithin)
	if err != nil {
		return err
	}
	defer done()
	all, err := c.MasterKeys(ctx)
	if err != nil {
		return err
	}
	return agreed(all, key)
}

// settled says under which master key everything is sealed. Problems: conflict, when something is not.
func settled(all []client.ServiceKeys) (key string, err error) {
	for _, k := range all {
		switch {
		case k.Remaining > 0 && k.Reason != "":
			return "", problem.New(problem.Conflict, "%s: %d remain sealed under an earlier key; %s", k.Service, k.Remaining, k.Reason)
		case k.Remaining > 0:
			return "", problem.New(problem.Conflict, "%s: %d remain sealed under an earlier key; run execwarden keys rewrap", k.Service, k.Remaining)
		case key != "" && k.Key != key:
			return "", problem.New(problem.Conflict, "%s seals under %s, and others under %s: it has not got the new file yet", k.Service, k.Key, key)
		}
		key = k.Key
	}
	return key, nil
}

func keysGrid(list []client.ServiceKeys) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "SERVICE"}, {Name: "MASTER KEY"}, {Name: "TENANTS"}, {Name: "REWRAPPED"}, {Name: "RESEALED"}, {Name: "REMAINING"}, {Name: "REASON", Wide: true}}}
	for _, k := range list {
		tone := render.Good
		if k.Remaining > 0 {
			tone = render.Bad
		}
		g.Row(render.Text(string(k.Service)), render.Text(k.Key), render.Text(strconv.Itoa(k.Tenants)), render.Text(strconv.Itoa(k.Keys)), render.Text(strconv.Itoa(k.Resealed)),
			render.Cell{Text: strconv.Itoa(k.Remaining), Tone: tone}, render.Text(k.Reason))
	}
	return g
}

func instanceGrid(list []ask.InstanceKey) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "SERVICE"}, {Name: "INSTANCE"}, {Name: "MASTER KEY"}, {Name: "REASON"}}}
	for _, k := range list {
		g.Row(render.Text(k.Service), render.Text(k.Instance), render.Text(k.Key), render.Cell{Text: k.Reason, Tone: render.Bad})
	}
	return g
}

// agreed checks that every instance seals under key: one that does not, or does not say, may still need another.
func agreed(all []ask.InstanceKey, key string) error {
	for _, k := range all {
		switch {
		case k.Reason != "":
			return problem.New(problem.Conflict, "%s %s: %s", k.Service, k.Instance, k.Reason)
		case k.Key != key:
			return problem.New(problem.Conflict, "%s %s seals under %s, and others under %s: it has not got the new file yet", k.Service, k.Instance, k.Key, key)
		}
	}
	return nil
}

func (a *app) keysPruneCommand() *cobra.Command {
	var file string
	yes := false
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Drop the earlier master keys from the file, once nothing needs them",
		Args:  cobra.NoArgs,
		Long: exits(`Asks each service whether anything is still sealed under an earlier key, and every instance of it under which key it seals;
and drops the earlier keys from the file when nothing needs them. What a backup holds from before the rewrap opens only with
the dropped keys: keep them with the backup, or make a new one.`, map[int]string{1: "something remains sealed under an earlier key, or the services do not seal under the file's key; or the API cannot be reached"}),
		Example: "  execwarden keys prune\n  execwarden keys prune --file /etc/execwarden/master.key --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := a.masterKeyFile(file)
			all, err := a.allKeys(cmd.Context(), true)
			if err != nil {
				return err
			}
			key, err := settled(all)
			if err != nil {
				return err
			}
			if err := a.agreeOn(cmd.Context(), key); err != nil {
				return err
			}
			err = a.confirm(cmd.Context(), yes, fmt.Sprintf("Drop every key older than %s from %s?", key, path))
			if errors.Is(err, errDeclined) {
				a.note("%s", err)
				return nil
			}
			if err != nil {
				return err
			}
			dropped, err := vault.PruneFile(path, key)
			if err != nil {
				return err
			}
			return a.printer().One(fileKey{File: path, Key: key, Seals: true, Dropped: dropped}, func(w io.Writer) {
				fmt.Fprintf(w, "%s dropped; %s is left\n", render.Count(dropped, "earlier key"), key)
			})
		},
	}
	fileFlag(cmd, &file)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) keysRenewCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "renew",
		Short: "Give the tenant new keys of its own",
		Args:  cobra.NoArgs,
		Long: exits(`Gives the token's tenant a new key in each service that keeps secrets, and seals its secrets under it. The keys before
stay, to open what was sealed under them. Do this when a tenant's key may be known to somebody; and since they may
know the credentials too, replace those. A service that keeps no secrets of the tenant is left out.`, nil),
		Example: "  execwarden keys renew",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "renewing keys", keysWithin)
			if err != nil {
				return err
			}
			defer done()
			var all []client.ServiceKeys
			for _, s := range schemas.Keepers() {
				k, err := c.RenewKeys(ctx, s)
				if problem.CodeOf(err) == problem.NotFound {
					continue
				}
				if err != nil {
					return err
				}
				all = append(all, client.ServiceKeys{Service: s, Rewrapped: k})
			}
			if err := render.List(a.printer(), "services", all, keysGrid); err != nil {
				return err
			}
			_, err = settled(all)
			return err
		},
	}
}
