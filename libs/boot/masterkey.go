package boot

import (
	"os"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

// MasterKey says where the key is that secrets are sealed under. When several are set, the KMS seals before the
// environment, and that before the file; what any of them sealed opens. So a deployment moves from one to the other.
//
// The environment variable EXECWARDEN_MASTER_KEY holds the key itself, and EXECWARDEN_TRANSIT_TOKEN the KMS's token.
// They are no flags and no keys of a configuration file, which others may read, and they leave this process's
// environment once they are read: a program that it starts does not inherit them.
type MasterKey struct {
	MasterKeyFile    string `name:"master_key_file" help:"file with the key that seals secrets (age identities, the newest first), mode 0600; or set EXECWARDEN_MASTER_KEY to the key itself, or transit_url"`
	TransitURL       string `name:"transit_url" help:"a HashiCorp Vault or OpenBao server whose transit engine seals secrets, such as https://openbao.example:8200"`
	TransitMount     string `name:"transit_mount" default:"transit" help:"where the transit engine is mounted"`
	TransitKey       string `name:"transit_key" default:"execwarden" help:"name of the transit engine's key"`
	TransitTokenFile string `name:"transit_token_file" help:"file with the token for the transit engine, mode 0600, read anew for each request; or set EXECWARDEN_TRANSIT_TOKEN"`
}

// The environment variables that are secrets.
const (
	masterKeyVariable    = envPrefix + "MASTER_KEY"
	transitTokenVariable = envPrefix + "TRANSIT_TOKEN"
)

// Elsewhere says whether the master key is not, or not only, in a file.
func (m MasterKey) Elsewhere() bool { return m.TransitURL != "" || os.Getenv(masterKeyVariable) != "" }

// Open reads the master key; nil when none is set. It takes the secrets out of the environment, so it is called once.
func (m MasterKey) Open() (vault.Master, error) {
	keys, err := take(masterKeyVariable)
	if err != nil {
		return nil, err
	}
	token, err := take(transitTokenVariable)
	if err != nil {
		return nil, err
	}
	var all vault.Masters
	if m.TransitURL != "" {
		one, err := vault.NewTransit(vault.TransitConfig{URL: m.TransitURL, Mount: m.TransitMount, Key: m.TransitKey, TokenFile: m.TransitTokenFile, Token: token})
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	} else if !token.Empty() || m.TransitTokenFile != "" {
		return nil, problem.New(problem.Invalid, "there is a token for a transit engine, and no transit_url")
	}
	if !keys.Empty() {
		one, err := vault.ParseMaster(keys.Reveal())
		if err != nil {
			return nil, problem.Wrap(err, problem.Invalid, "%s: %s", masterKeyVariable, problem.DetailOf(err).Message)
		}
		all = append(all, one)
	}
	if m.MasterKeyFile != "" {
		one, err := vault.OpenMaster(m.MasterKeyFile)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

// take reads a secret from the environment, and removes it there.
func take(name string) (vault.Secret, error) {
	text := os.Getenv(name)
	if err := os.Unsetenv(name); err != nil {
		return vault.Secret{}, problem.Wrap(err, problem.Internal, "%s cannot be taken out of the environment", name)
	}
	return vault.NewSecret(text), nil
}
