package toolbroker

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/key"
)

// deployment is the tenant of what belongs to no customer.
const deployment = id.Tenant("tnt_deployment")

// permitKeyName is the permit key's name among the broker's secrets.
const permitKeyName = "permit-key"

// publishKey reads the key that signs permits, or makes it, and says its public half, signed by the root key. The
// event's id is derived from the key, so saying it at every start adds nothing within the deduplication window, and
// an equal event after it.
func (s *Service) publishKey(ctx context.Context) error {
	text, err := keyfile.Read(s.cfg.RootSigningKeyFile)
	if err != nil {
		return err
	}
	root, err := keyfile.Parse(text, s.cfg.RootSigningKeyFile)
	if err != nil {
		return err
	}
	if !root.Public().(ed25519.PublicKey).Equal(s.deps.Root) {
		return problem.New(problem.Invalid, "%s is not the private half of the deployment's root key", s.cfg.RootSigningKeyFile)
	}
	private, err := s.permitKey(ctx)
	if err != nil {
		return err
	}
	public := private.Public().(ed25519.PublicKey)
	k := id.Derive[id.Key](string(public))
	p := key.Published{Key: k, Purpose: permit.Purpose, Public: public, NotBefore: s.now().UTC()}
	p.Signature = ed25519.Sign(root, p.SignedBytes())
	_, err = s.deps.Log.Append(ctx, eventlog.Draft{Event: p, Tenant: deployment, Key: string(k), Actor: actor,
		ID: id.Derive[id.Event](string(k), "published")})
	s.signer = permit.NewSigner(k, private)
	return err
}

func (s *Service) permitKey(ctx context.Context) (ed25519.PrivateKey, error) {
	sealed, err := s.vault.Get(ctx, deployment, permitKeyName)
	if problem.CodeOf(err) == problem.NotFound {
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			return nil, err
		}
		// Two instances that start at once may both make one; the last kept wins for both after their next start,
		// and until then both keys are published and valid.
		_, err = s.vault.Put(ctx, deployment, permitKeyName, vault.NewSecret(base64.StdEncoding.EncodeToString(private.Seed())))
		return private, err
	}
	if err != nil {
		return nil, err
	}
	return keyfile.Parse(sealed.Reveal(), "the sealed permit key")
}
