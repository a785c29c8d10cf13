// Package dockerkit gives tests the machine's real Docker engine, and an image to run.
package dockerkit

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// Marker is in /etc/os-release of Image and nowhere else, and is the value of the variable MARK that it gives.
const Marker = "of-the-image"

// Socket is the engine's.
const Socket = "/var/run/docker.sock"

// Engine reaches the engine, or skips the test where there is none.
func Engine(t testing.TB) *client.Client {
	t.Helper()
	api, err := client.New(client.WithHost("unix://" + Socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		t.Skipf("SKIPPED: no Docker engine answers at %s (apt-get install docker.io, and run dockerd): %v", Socket, err)
	}
	return api
}

// Image gives the name of an image made of a static busybox (Debian's busybox-static).
func Image(t testing.TB, api *client.Client) string {
	t.Helper()
	return image(t, api, "execwarden-test:busybox", func() []string { return nil })
}

// ImageWithGit gives the name of an image that has git besides, with what it speaks HTTP by, and their libraries.
func ImageWithGit(t testing.TB, api *client.Client) string {
	t.Helper()
	return image(t, api, "execwarden-test:git", func() []string {
		program, err := exec.LookPath("git")
		if err != nil {
			t.Skip("SKIPPED: no git to make an image of (apt-get install git)")
		}
		out, err := exec.Command(program, "--exec-path").Output()
		if err != nil {
			t.Fatal(err)
		}
		files := []string{program, filepath.Join(strings.TrimSpace(string(out)), "git-remote-http")}
		for _, f := range files[:2:2] {
			needs, err := exec.Command("ldd", f).Output()
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range strings.Fields(string(needs)) {
				if filepath.IsAbs(word) && !slices.Contains(files, word) {
					files = append(files, word)
				}
			}
		}
		return files
	})
}

func image(t testing.TB, api *client.Client, name string, more func() []string) string {
	t.Helper()
	if _, err := api.ImageInspect(t.Context(), name); err == nil {
		return name
	}
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("SKIPPED: no busybox to make an image of (apt-get install busybox-static)")
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	applets, err := exec.Command(path, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	result, err := api.ImageImport(t.Context(), client.ImageImportSource{Source: rootfs(t, program, strings.Fields(string(applets)), more()), SourceName: "-"}, name,
		client.ImageImportOptions{Changes: []string{"ENV PATH=/opt/tools:/bin:/usr/bin", "ENV MARK=" + Marker}})
	if err != nil {
		t.Fatal(err)
	}
	defer result.Close()
	var said bytes.Buffer
	if _, err := said.ReadFrom(result); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	return name
}

// rootfs makes a root file system of busybox and of files of this machine, at their own paths.
func rootfs(t testing.TB, program []byte, applets, files []string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	put := func(h tar.Header, body []byte) {
		h.Size = int64(len(body))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin/", "etc/", "opt/", "opt/tools/", "usr/"} {
		put(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil)
	}
	put(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil)
	put(tar.Header{Typeflag: tar.TypeReg, Name: "etc/os-release", Mode: 0o644}, []byte("ID="+Marker+"\n"))
	put(tar.Header{Typeflag: tar.TypeReg, Name: "opt/tools/of-the-image", Mode: 0o755}, []byte("#!/bin/sh\necho \"$MARK\"\n"))
	put(tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, program)
	for _, name := range applets {
		if name != "busybox" {
			put(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox"}, nil)
		}
	}
	for _, path := range files {
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		put(tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(path, "/"), Mode: 0o755}, body)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// Containers names the containers of a connector's home, in whatever state.
func Containers(t testing.TB, api *client.Client, home string) (names []string) {
	t.Helper()
	list, err := api.ContainerList(context.WithoutCancel(t.Context()), client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", "com.execwarden.home="+home)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Items {
		names = append(names, strings.TrimPrefix(c.Names[0], "/"))
	}
	return names
}

// RemoveAll removes the containers of a connector's home.
func RemoveAll(t testing.TB, api *client.Client, home string) {
	t.Helper()
	for _, name := range Containers(t, api, home) {
		if _, err := api.ContainerRemove(context.WithoutCancel(t.Context()), name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			t.Errorf("container %s is left: %v", name, err)
		}
	}
}
