package toolbroker

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/toolbroker/internal/apipackage"
)

// Bounds of an import.
const (
	manifestFile = "manifest.yaml"
	maxManifest  = 1 << 20
	maxFiles     = 1000
	maxChanges   = 200
	maxWarnings  = 100
)

// importPackage reads an API's description and keeps what is needed to call it. New operations are ungranted by nature;
// what changed is answered, for people.
func (s *Service) importPackage(ctx context.Context, who rpc.Caller, q ask.ImportPackage) (ask.Imported, error) {
	if !member.Role(who.Role).MayConfigure() {
		return ask.Imported{}, problem.New(problem.Denied, "a %s may not change connections", who.Role)
	}
	name := id.Name(q.Connection)
	def, ok := s.state.Connection(who.Tenant, name)
	if !ok || def.Type != connection.API {
		return ask.Imported{}, problem.New(problem.NotFound, "there is no connection %s of type api", name)
	}
	raw, err := s.deps.Log.GetUpload(ctx, who.Tenant, q.Upload)
	if err != nil {
		return ask.Imported{}, err
	}
	source, err := readArchive(raw, q.Document)
	if err != nil {
		return ask.Imported{}, err
	}
	if source.Manifest.BaseURL != def.URL {
		return ask.Imported{}, problem.New(problem.Invalid, "the manifest's base_url is %.200q and the connection's url %.200q; they have to be the same", source.Manifest.BaseURL, def.URL)
	}
	if before, ok := s.state.Package(who.Tenant, q.Connection); ok {
		if source.Previous, err = apipackage.Unmarshal(before.Body.Package); err != nil {
			return ask.Imported{}, err
		}
	}
	imported, warnings, err := apipackage.Import(ctx, source)
	if err != nil {
		return ask.Imported{}, err
	}
	compiled, err := imported.Marshal()
	if err != nil {
		return ask.Imported{}, problem.Wrap(err, problem.Internal, "the package cannot be written")
	}
	seq, err := s.deps.Log.Append(ctx, eventlog.Draft{Tenant: who.Tenant, Key: string(q.Connection), Actor: who.Actor, Event: connection.Packaged{
		Connection: q.Connection, Name: imported.Name, Version: imported.Version, Digest: imported.Digest, Operations: len(imported.Operations),
		Body: connection.Package{Package: compiled},
	}})
	if err != nil {
		return ask.Imported{}, err
	}
	// A crash here leaves the tools of before listed; importing again, or defining the connection, lists the new ones.
	if err := s.view.Wait(ctx, seq); err != nil {
		return ask.Imported{}, err
	}
	out := ask.Imported{Seq: seq, Digest: imported.Digest, Operations: len(imported.Operations), Changes: []string{}}
	for _, c := range apipackage.Diff(cmp.Or(source.Previous, &apipackage.Package{}), imported) {
		if len(out.Changes) < maxChanges {
			out.Changes = append(out.Changes, strings.TrimSpace(fmt.Sprintf("%s %s (%s) %s", c.Kind, c.Tool, c.Route, strings.Join(c.Words, ", "))))
		}
	}
	for _, w := range warnings[:min(len(warnings), maxWarnings)] {
		out.Warnings = append(out.Warnings, w.String())
	}
	return out, s.list(ctx, who.Tenant, q.Connection, "")
}

// readArchive takes an upload apart. The archive is only read, never unpacked, and what a reference may reach is in it.
func readArchive(raw []byte, document string) (apipackage.Source, error) {
	archive, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil || len(archive.File) > maxFiles {
		return apipackage.Source{}, problem.New(problem.Invalid, "the upload is not a zip archive of at most %d files", maxFiles)
	}
	if !fs.ValidPath(document) || document == manifestFile {
		return apipackage.Source{}, problem.New(problem.Invalid, "document %.200q is not the name of a file in the archive", document)
	}
	f, err := archive.Open(manifestFile)
	if err != nil {
		return apipackage.Source{}, problem.New(problem.Invalid, "the archive has no %s", manifestFile)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil || len(text) > maxManifest {
		return apipackage.Source{}, problem.New(problem.Invalid, "%s cannot be read, or is over %d bytes", manifestFile, maxManifest)
	}
	manifest, err := apipackage.ParseManifest(text)
	if err != nil {
		return apipackage.Source{}, err
	}
	return apipackage.Source{Files: archive, Document: document, Manifest: manifest, MaxPrefix: id.MaxNameLength}, nil
}
