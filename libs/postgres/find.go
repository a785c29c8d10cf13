package postgres

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// usualPlaces are where packages put the server's programs, which often are not in PATH.
var usualPlaces = []string{
	"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                   // RHEL and Fedora, from postgresql.org
	"/usr/bin",                           // Fedora's own package, Arch, Alpine
	"/usr/libexec/postgresql*",           // Alpine, versioned
	"/opt/homebrew/opt/postgresql*/bin",  // Homebrew on Apple silicon
	"/usr/local/opt/postgresql*/bin",     // Homebrew on Intel
	"/Applications/Postgres.app/*/*/bin", // Postgres.app: Contents/Versions
	"/usr/local/pgsql/bin",               // from source
}

// Find returns the directory of the newest installed Postgres server. It looks in PATH first. The code of its error
// is problem.NotFound.
func Find() (binDir string, err error) { return find("") }

// find is Find for one major version, or for any if major is empty.
func find(major string) (string, error) {
	for _, dir := range candidates() {
		if major == "" || majorOf(dir) == major {
			return dir, nil
		}
	}
	if major != "" {
		return "", problem.New(problem.NotFound, "no PostgreSQL %s server is installed, and the cluster was made by that version", major)
	}
	return "", problem.New(problem.NotFound, "no PostgreSQL server is installed (on Debian and Ubuntu: apt install postgresql)")
}

// candidates lists the directories that hold a server, the preferred one first.
func candidates() []string {
	var dirs []string
	if postgres, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(postgres); err == nil {
			postgres = real // initdb lies beside the real file, not beside the link
		}
		dirs = append(dirs, filepath.Dir(postgres))
	}
	for _, pattern := range usualPlaces {
		found, _ := filepath.Glob(pattern) // only a malformed pattern fails
		slices.SortFunc(found, newestFirst)
		dirs = append(dirs, found...)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return !holdsServer(dir) })
}

// newestFirst orders paths by the version number in them: as text, 9.6 would come before 15.
func newestFirst(a, b string) int { return cmp.Compare(versionIn(b), versionIn(a)) }

var version = regexp.MustCompile(`\d+(\.\d+)?`)

func versionIn(path string) float64 {
	n, _ := strconv.ParseFloat(version.FindString(path), 64) // no version counts as the oldest
	return n
}

func holdsServer(dir string) bool {
	for _, program := range []string{"postgres", "initdb"} {
		info, err := os.Stat(filepath.Join(dir, program))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// majorOf asks the server in dir for its major version; it is empty when the server does not say.
func majorOf(dir string) string {
	out, err := exec.CommandContext(context.Background(), filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(out)) // postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
	if len(fields) < 3 {
		return ""
	}
	major, _, _ := strings.Cut(fields[2], ".")
	return strings.TrimRight(major, "abcdefghijklmnopqrstuvwxyz") // 18beta1
}
