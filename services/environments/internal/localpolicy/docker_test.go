package localpolicy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/environment"
)

// The template is a policy for the host driver as it stands; for docker it wants an image, and what is left out of the
// section is the template's.
func TestDockerSection(t *testing.T) {
	p, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.For(environment.Host); err != nil || p.Network != Off {
		t.Errorf("host: %v, network %s", err, p.Network)
	}
	if err := p.For(environment.Docker); problem.CodeOf(err) != problem.Invalid || !strings.Contains(err.Error(), "docker.image") {
		t.Errorf("docker without an image: %v", err)
	}
	p, err = Parse([]byte("network: all\ndocker:\n  image: debian:12\n  memory: 64m\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.For(environment.Docker); err != nil || p.Network != Off {
		t.Errorf("docker: %v, network %s", err, p.Network)
	}
	if d := p.Docker; d.MemoryBytes() != 64<<20 || d.PIDs != 512 || d.CPUs != 2 || d.Pull != Never || d.Socket == "" {
		t.Errorf("%+v", d)
	}
	p, err = Parse([]byte("docker: {image: a, network: builders, user: \"1000:1001\"}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.For(environment.Docker); os.Geteuid() == 0 && err != nil || p.Network != "docker:builders" {
		t.Errorf("docker: %v, network %s", err, p.Network)
	}
	if uid, gid := p.Commands(); os.Geteuid() == 0 && (uid != 1000 || gid != 1001) {
		t.Errorf("commands run as %d:%d", uid, gid)
	}
}

func TestHostileDockerSection(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/var/run", link); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"an option for an image":            "docker: {image: --privileged}",
		"a line in an image":                "docker: {image: \"a\\nb\"}",
		"a long image":                      "docker: {image: " + strings.Repeat("a", 256) + "}",
		"the machine's network":             "docker: {image: a, network: host}",
		"another container's network":       "docker: {image: a, network: \"container:abc\"}",
		"all":                               "docker: {image: a, network: all}",
		"no network":                        "docker: {image: a, network: \"\"}",
		"pull always":                       "docker: {image: a, pull: always}",
		"an engine elsewhere":               "docker: {image: a, socket: \"tcp://10.0.0.1:2375\"}",
		"a socket with dots":                "docker: {image: a, socket: /var/run/../x.sock}",
		"a user's name":                     "docker: {image: a, user: root}",
		"a user below zero":                 "docker: {image: a, user: \"-1\"}",
		"memory of nothing":                 "docker: {image: a, memory: 1k}",
		"memory in words":                   "docker: {image: a, memory: plenty}",
		"cpus below zero":                   "docker: {image: a, cpus: -1}",
		"no bound on processes":             "docker: {image: a, pids: -1}",
		"a runtime's path":                  "docker: {image: a, runtime: /tmp/evil}",
		"a key that nobody knows":           "docker: {image: a, privileged: true}",
		"a root with the socket":            "roots: [{path: /var/run}]",
		"a root with all":                   "roots: [{path: /}]",
		"a root that is the socket":         "roots: [{path: /var/run/docker.sock}]",
		"a root that links to the socket":   "roots: [{path: " + link + "}]",
		"volumes in the socket's directory": "volumes: /var/run",
	} {
		if _, err := Parse([]byte(text)); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if os.Geteuid() == 0 {
		p, err := Parse([]byte("docker: {image: a, user: \"0\"}"))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.For(environment.Docker); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("root: %v", err)
		}
	}
}
