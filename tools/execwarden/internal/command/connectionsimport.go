package command

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

// maxPackageFiles bounds what is read for one import, in bytes.
const maxPackageFiles = 64 << 20

func (a *app) connectionsImportCommand() *cobra.Command {
	var document, manifest string
	cmd := &cobra.Command{
		Use:   "import CONNECTION --document FILE|DIR|URL --manifest FILE",
		Short: "Import the OpenAPI description of a connection of type api",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Imports an OpenAPI 3 or Swagger 2 description: the operations that the manifest includes become tools of the
connection. Nothing is granted by that. Importing again keeps the names of tools and shows what changed. A description in
several files is a directory with openapi.yaml or openapi.json in it; references lead nowhere else. One at a URL is
fetched by this command, over https, and never again.`, map[int]string{4: "there is no such connection of type api"}),
		Example: "  execwarden connections import petstore --document openapi.json --manifest package.yaml\n" +
			"  execwarden connections import petstore --document https://petstore3.swagger.io/api/v3/openapi.json --manifest package.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "importing", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			file := document
			if isURL(document) {
				fetched, forget, err := fetchDocument(ctx, document)
				if err != nil {
					return err
				}
				defer forget()
				file = fetched
			}
			archive, name, err := packArchive(file, manifest)
			if err != nil {
				return err
			}
			r, err := c.ImportPackage(ctx, args[0], name, archive)
			if err != nil {
				return err
			}
			return a.printer().One(r, func(w io.Writer) {
				for _, line := range r.Warnings {
					fmt.Fprintf(w, "warning: %s\n", render.Visible(line))
				}
				for _, line := range r.Changes {
					fmt.Fprintln(w, render.Visible(line))
				}
				fmt.Fprintf(w, "%d operations, digest %.12s; grant what an agent may call\n", r.Operations, r.Digest)
			})
		},
	}
	cmd.Flags().StringVar(&document, "document", "", "the description: a file, a directory or a URL")
	cmd.Flags().StringVar(&manifest, "manifest", "", "what to offer of it, and how to sign in")
	_ = cmd.MarkFlagRequired("document") // these fail for flags that are not there only
	_ = cmd.MarkFlagRequired("manifest")
	return cmd
}

// packArchive makes the archive of an import, and gives the document's name in it.
func packArchive(document, manifest string) ([]byte, string, error) {
	info, err := os.Stat(document)
	if err != nil {
		return nil, "", problem.Wrap(err, problem.Invalid, "%s cannot be read", document)
	}
	dir, name := filepath.Dir(document), filepath.Base(document)
	files := []string{name}
	if info.IsDir() {
		dir = document
		if files, name, err = describedIn(dir); err != nil {
			return nil, "", err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", problem.Wrap(err, problem.Invalid, "%s cannot be read", dir)
	}
	defer root.Close()
	var out bytes.Buffer
	archive, left := zip.NewWriter(&out), int64(maxPackageFiles)
	add := func(as string, from func() (io.ReadCloser, error)) error {
		f, err := from()
		if err != nil {
			return problem.Wrap(err, problem.Invalid, "%s cannot be read", as)
		}
		defer f.Close()
		w, err := archive.Create(as)
		if err != nil {
			return err
		}
		n, err := io.Copy(w, io.LimitReader(f, left+1))
		if left -= n; left < 0 {
			return problem.New(problem.TooLarge, "the description's files are over %d bytes together", maxPackageFiles)
		}
		return err
	}
	err = add("manifest.yaml", func() (io.ReadCloser, error) { return os.Open(manifest) })
	for _, f := range files {
		err = errors.Join(err, add(f, func() (io.ReadCloser, error) { return root.Open(filepath.FromSlash(f)) }))
	}
	return out.Bytes(), name, errors.Join(err, archive.Close())
}

// describedIn lists the files of a description in several, and names the one to begin with.
func describedIn(dir string) (files []string, name string, err error) {
	for _, candidate := range []string{"openapi.yaml", "openapi.yml", "openapi.json", "swagger.yaml", "swagger.json"} {
		if _, err := os.Stat(filepath.Join(dir, candidate)); err == nil {
			name = candidate
			break
		}
	}
	if name == "" {
		return nil, "", problem.New(problem.Invalid, "%s has no openapi.yaml or openapi.json; name the file", dir)
	}
	err = fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path == "manifest.yaml" {
			return err
		}
		switch filepath.Ext(path) {
		case ".yaml", ".yml", ".json":
			files = append(files, path)
		}
		return nil
	})
	return files, name, err
}
