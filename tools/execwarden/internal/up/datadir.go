package up

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"crypto/ed25519"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

// dataDir is a locked data directory with its keys.
type dataDir struct {
	path   string
	lock   *os.File
	root   ed25519.PrivateKey
	master vault.Master
}

// openDataDir makes the directory if need be, and locks it: two processes on one store would destroy it.
func openDataDir(path string, master boot.MasterKey) (*dataDir, error) {
	// Others may pass through, since Postgres runs as another user when we are root; what is secret has modes of its own.
	if err := os.MkdirAll(path, 0o711); err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "data directory %s cannot be made", path)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "data directory %s cannot be written", path)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, problem.Wrap(err, problem.Conflict, "data directory %s is in use by another execwarden up; stop it, or choose another with --data", path)
	}
	d := &dataDir{path: path, lock: lock}
	if d.root, err = keyfile.Load(d.file("root.key")); err == nil {
		d.master, err = d.openMaster(master)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// openMaster opens the master key. When nothing is set, it is in the directory, and is made there at the first start;
// one that is there still opens what it sealed when another is set.
func (d *dataDir) openMaster(m boot.MasterKey) (vault.Master, error) {
	if m.MasterKeyFile == "" {
		m.MasterKeyFile = d.file("master.key")
		switch _, err := os.Stat(m.MasterKeyFile); {
		case !errors.Is(err, os.ErrNotExist):
		case m.Elsewhere():
			m.MasterKeyFile = ""
		default:
			if _, err := vault.LoadMaster(m.MasterKeyFile); err != nil {
				return nil, err
			}
		}
	}
	return m.Open()
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

func (d *dataDir) public() ed25519.PublicKey { return d.root.Public().(ed25519.PublicKey) }

// close gives the lock back, which the kernel also does when the process dies.
func (d *dataDir) close() error { return d.lock.Close() }

// Endpoints is where a running process is reached, as it leaves it in its data directory.
type Endpoints struct {
	PID       int    `json:"pid"`
	API       string `json:"api"`
	Hooks     string `json:"hooks"`
	Ops       string `json:"ops"`
	NATS      string `json:"nats,omitempty"`
	RootKey   string `json:"root_key"` // public, base64
	TokenFile string `json:"token_file"`
}

func (d *dataDir) announce(e Endpoints) error {
	e.PID, e.RootKey, e.TokenFile = os.Getpid(), base64.StdEncoding.EncodeToString(d.public()), d.file(ownerTokenFile)
	raw, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	tmp := d.file(endpointsFile + ".new")
	if err := os.WriteFile(tmp, append(raw, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, d.file(endpointsFile))
}

func (d *dataDir) retract() { _ = os.Remove(d.file(endpointsFile)) } // left behind, it names a process that is gone

// ReadEndpoints reads where the process that runs on a data directory is reached.
func ReadEndpoints(dataDir string) (Endpoints, error) {
	raw, err := os.ReadFile(filepath.Join(dataDir, endpointsFile))
	if err != nil {
		return Endpoints{}, problem.Wrap(err, problem.Unavailable, "execwarden up does not run on %s, or is not ready yet", dataDir)
	}
	var e Endpoints
	if err := json.Unmarshal(raw, &e); err != nil {
		return Endpoints{}, problem.Wrap(err, problem.Internal, "%s is damaged", endpointsFile)
	}
	return e, nil
}
