package auth

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/tenant"
	"github.com/execwarden/execwarden/services/gateway/internal/roster"
)

// The first tenant and its first member.
const (
	MainTenant = id.Tenant("tnt_main")
	Owner      = id.Member("mem_owner")
)

// EnsureOwner makes the token in the file, which is made when there is none, a valid token of the owner. It gives the
// sequence up to which the control stream has to be heard for the token to work.
func (p *People) EnsureOwner(ctx context.Context, path string) (seq uint64, err error) {
	secret, err := loadToken(path)
	if err != nil {
		return 0, err
	}
	seq, err = p.once(ctx, eventlog.Draft{Tenant: MainTenant, Key: string(MainTenant), Actor: actor, Event: tenant.Created{Tenant: MainTenant, Name: id.Name(MainTenant)}})
	if err != nil {
		return 0, err
	}
	at, err := roster.Change(ctx, p.log, MainTenant, actor, Owner, func(r *roster.Roster) (schemas.Event, error) {
		if len(r.Roles) > 0 {
			return nil, nil // also when somebody else is the owner by now: a restart takes nothing back
		}
		return member.Added{Member: Owner, Role: member.Owner}, nil
	})
	if err != nil {
		return 0, err
	}
	seq = max(seq, at)
	at, err = p.Admit(ctx, secret, Membership{Tenant: MainTenant, Member: Owner, Role: member.Owner})
	return max(seq, at), err
}

// loadToken reads a token from a file that only its owner may read, and makes the file when there is none.
func loadToken(path string) (vault.Secret, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return createToken(path)
	}
	if err != nil {
		return vault.Secret{}, problem.Wrap(err, problem.Invalid, "owner token file %s cannot be read", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return vault.Secret{}, problem.New(problem.Invalid, "owner token file %s is readable by others; chmod 600 it", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return vault.Secret{}, problem.Wrap(err, problem.Invalid, "owner token file %s cannot be read", path)
	}
	secret, err := ParseToken(strings.TrimSpace(string(text)))
	if err != nil {
		return vault.Secret{}, problem.New(problem.Invalid, "owner token file %s does not hold an access token (%s...)", path, tokenPrefix)
	}
	return secret, nil
}

// createToken writes the token whole and durable under another name first: a crash never leaves half a token, nor an
// admitted one that is in no file.
func createToken(path string) (vault.Secret, error) {
	secret := NewToken()
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = io.WriteString(f, secret.Reveal()+"\n")
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return vault.Secret{}, problem.Wrap(err, problem.Invalid, "owner token file %s cannot be made", path)
	}
	return secret, nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
