package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
)

// Files of a connector's home.
const (
	seedFile     = "connector.seed" // the NKey, made here; it never leaves
	identityFile = "identity.json"
	storeFile    = "store.json"
)

// Identity is what a machine was enrolled as, and where.
type Identity struct {
	connector.Identity
	Server string `json:"server"` // URL
}

// maxIdentity bounds what a server may answer to an enrolment, in bytes.
const maxIdentity = 64 << 10

// Enrol makes an NKey, unless there is one, and has it enrolled with a token. Asked again with the same token it is answered
// the same, so that a lost answer costs nothing. Problems: conflict when the machine is enrolled already.
func Enrol(ctx context.Context, client *http.Client, home, server, token string) (Identity, error) {
	base, err := url.Parse(server)
	if err != nil || base.Scheme != "https" && base.Scheme != "http" || base.Host == "" {
		return Identity{}, problem.New(problem.Invalid, "%.200q is no URL of an ExecWarden server", server)
	}
	if there, err := LoadIdentity(home); err == nil {
		return Identity{}, problem.New(problem.Conflict, "this machine is enrolled as environment %s of %s already; its home is %s", there.Environment, there.Server, home)
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return Identity{}, problem.Wrap(err, problem.Invalid, "directory %s cannot be made", home)
	}
	pair, err := loadKey(home)
	if errors.Is(err, os.ErrNotExist) {
		pair, err = makeKey(home)
	}
	if err != nil {
		return Identity{}, err
	}
	public, err := pair.PublicKey()
	if err != nil {
		return Identity{}, err
	}
	proof, err := pair.Sign(connector.EnrolText(token, public))
	if err != nil {
		return Identity{}, err
	}
	out := Identity{Server: strings.TrimSuffix(base.String(), "/")}
	if err := post(ctx, client, out.Server+"/v1/connectors", connector.Enrol{Token: token, NKey: public, Proof: proof}, &out.Identity); err != nil {
		return Identity{}, err
	}
	raw, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return Identity{}, err
	}
	return out, keyfile.Write(filepath.Join(home, identityFile), string(raw))
}

func post(ctx context.Context, client *http.Client, to string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "%s cannot be reached from this machine", to)
	}
	defer resp.Body.Close()
	raw, err = io.ReadAll(io.LimitReader(resp.Body, maxIdentity))
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "%s did not answer to its end", to)
	}
	if resp.StatusCode != http.StatusOK {
		p := problem.ReadHTTP(raw)
		if p == nil || !p.Code.Known() {
			return problem.New(problem.Unavailable, "%s answered with status %d; is that an ExecWarden server?", to, resp.StatusCode)
		}
		return problem.New(p.Code, "%.500s", p.Message)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return problem.Wrap(err, problem.Unavailable, "%s did not answer as an ExecWarden server does", to)
	}
	return nil
}

// LoadIdentity reads what the machine was enrolled as. Problems: not_found.
func LoadIdentity(home string) (out Identity, err error) {
	raw, err := os.ReadFile(filepath.Join(home, identityFile))
	if err != nil {
		return out, problem.Wrap(err, problem.NotFound, "this machine is not enrolled: %s has no %s; execwarden env create prints the command that enrols it", home, identityFile)
	}
	if err := json.Unmarshal(raw, &out); err != nil || out.Tenant == "" || out.Environment == "" || len(out.Root) == 0 || !out.Driver.Valid() {
		return out, problem.New(problem.Invalid, "%s is damaged; enrol the machine anew", filepath.Join(home, identityFile))
	}
	return out, nil
}

func loadKey(home string) (nkeys.KeyPair, error) {
	text, err := keyfile.Read(filepath.Join(home, seedFile))
	if err != nil {
		return nil, err
	}
	pair, err := nkeys.FromSeed([]byte(text))
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "%s is damaged; enrol the machine anew", filepath.Join(home, seedFile))
	}
	return pair, nil
}

// makeKey keeps the seed before anybody knows its public half.
func makeKey(home string) (nkeys.KeyPair, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, err
	}
	return pair, keyfile.Write(filepath.Join(home, seedFile), string(seed))
}

// Store names the receipts of this home, and since when they are kept by the registry's clock. A machine whose receipts
// are gone has another store: it does not know what was begun before.
type Store struct {
	Name  string    `json:"name"`
	Since time.Time `json:"since,omitzero"` // zero: the registry was never heard
}

// LoadStore reads the store's name, or makes one.
func LoadStore(home string) (out Store, err error) {
	raw, err := os.ReadFile(filepath.Join(home, storeFile))
	if errors.Is(err, os.ErrNotExist) {
		out.Name = strings.ToLower(rand.Text())
		return out, out.save(home)
	}
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil || out.Name == "" {
		return out, problem.New(problem.Invalid, "%s is damaged; remove the connector's home and enrol the machine anew", filepath.Join(home, storeFile))
	}
	return out, nil
}

func (s Store) save(home string) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return keyfile.Write(filepath.Join(home, storeFile), string(raw))
}
