package files_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/environments/internal/files"
)

// volume is a tree with one root to write and one to read.
type volume struct {
	*files.Tree
	t         *testing.T
	dir, data string
}

func open(t *testing.T) *volume {
	t.Helper()
	v := &volume{t: t, dir: t.TempDir(), data: t.TempDir()}
	var err error
	if v.Tree, err = files.Open([]files.Root{{Path: v.dir, Write: true}, {Path: v.data}}, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func (v *volume) put(name, text string) {
	v.t.Helper()
	path := filepath.Join(v.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		v.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		v.t.Fatal(err)
	}
}

func (v *volume) get(name string) string {
	raw, err := os.ReadFile(filepath.Join(v.dir, name))
	if err != nil {
		return "-"
	}
	return string(raw)
}

// call calls a tool, and gives its result as JSON.
func (v *volume) call(tool string, args map[string]any) (string, error) {
	v.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		v.t.Fatal(err)
	}
	out, err := v.Call(v.t.Context(), tool, raw)
	if err != nil {
		return "", err
	}
	raw, err = json.Marshal(out)
	if err != nil {
		v.t.Fatal(err)
	}
	return string(raw), nil
}

func TestPatch(t *testing.T) {
	const before = "one\ntwo\nthree\n"
	for name, c := range map[string]struct {
		patch string
		code  problem.Code
		files map[string]string
	}{
		"plain":                   {"--- f\n+++ f\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n", "", map[string]string{"f": "one\n2\nthree\n"}},
		"plain with git's prefix": {"--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n", "", map[string]string{"f": "one\n2\nthree\n"}},
		"git's":                   {"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n one\n two\n+and a half\n three\n", "", map[string]string{"f": "one\ntwo\nand a half\nthree\n"}},
		"a new file":              {"diff --git a/d/n b/d/n\nnew file mode 100755\n--- /dev/null\n+++ b/d/n\n@@ -0,0 +1 @@\n+new\n", "", map[string]string{"d/n": "new\n", "f": before}},
		"a new file, plain":       {"--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+new\n", "", map[string]string{"n": "new\n"}},
		"a removed file":          {"diff --git a/g b/g\ndeleted file mode 100644\n--- a/g\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n", "", map[string]string{"g": "-", "f": before}},
		"a renamed file":          {"diff --git a/g b/h\nsimilarity index 100%\nrename from g\nrename to h\n", "", map[string]string{"g": "-", "h": "gone\n"}},
		"two files":               {"--- a/f\n+++ b/f\n@@ -1,3 +1,2 @@\n one\n two\n-three\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-gone\n+here\n", "", map[string]string{"f": "one\ntwo\n", "g": "here\n"}},
		"the second does not fit": {"--- a/f\n+++ b/f\n@@ -1,3 +1,2 @@\n one\n two\n-three\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-other\n+here\n", problem.Conflict, map[string]string{"f": before, "g": "gone\n"}},
		"the second is not there": {"--- a/f\n+++ b/f\n@@ -1,3 +1,2 @@\n one\n two\n-three\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-gone\n+here\n", problem.NotFound, map[string]string{"f": before}},
		"a new one that is there": {"diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+new\n", problem.Conflict, map[string]string{"f": before}},
		"outside":                 {"--- ../../etc/passwd\n+++ ../../etc/passwd\n@@ -1 +1 @@\n-x\n+y\n", problem.Denied, map[string]string{"f": before}},
		"one file twice":          {"--- a/f\n+++ b/f\n@@ -1,3 +1,2 @@\n one\n two\n-three\n--- a/f\n+++ b/f\n@@ -1,3 +1,2 @@\n-one\n two\n three\n", problem.Invalid, map[string]string{"f": before}},
		"binary":                  {"diff --git a/f b/f\nindex 1..2 100644\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\nliteral 1\nIcmZPo000310RR91\n\n", problem.Invalid, map[string]string{"f": before}},
		"text":                    {"hello", problem.Invalid, map[string]string{"f": before}},
		"nothing":                 {"", problem.Invalid, map[string]string{"f": before}},
	} {
		v := open(t)
		v.put("f", before)
		v.put("g", "gone\n")
		out, err := v.call("apply_patch", map[string]any{"patch": c.patch, "check": true})
		if problem.CodeOf(err) != c.code && (err != nil || c.code != "") || v.get("f") != before || v.get("g") != "gone\n" {
			t.Errorf("%s, checked only: %s, %v", name, out, err)
		}
		out, err = v.call("apply_patch", map[string]any{"patch": c.patch})
		if problem.CodeOf(err) != c.code && (err != nil || c.code != "") {
			t.Errorf("%s: %s, %v, want %q", name, out, err, c.code)
		}
		for file, want := range c.files {
			if got := v.get(file); got != want {
				t.Errorf("%s: %s is %q, want %q", name, file, got, want)
			}
		}
		left, _ := filepath.Glob(filepath.Join(v.dir, ".ew-*"))
		if len(left) != 0 {
			t.Errorf("%s leaves %v", name, left)
		}
	}
}

func TestEdit(t *testing.T) {
	v := open(t)
	v.put("f", "a b a\n")
	edit := func(edits ...map[string]any) error {
		_, err := v.call("edit_file", map[string]any{"path": "f", "edits": edits})
		return err
	}
	for name, c := range map[string]struct {
		edits []map[string]any
		code  problem.Code
	}{
		"nothing":          {nil, problem.Invalid},
		"not there":        {[]map[string]any{{"old": "x", "new": "y"}}, problem.Conflict},
		"there twice":      {[]map[string]any{{"old": "a", "new": "y"}}, problem.Conflict},
		"empty":            {[]map[string]any{{"old": "", "new": "y"}}, problem.Invalid},
		"the second fails": {[]map[string]any{{"old": "b", "new": "c"}, {"old": "x", "new": "y"}}, problem.Conflict},
		"grows too large":  {[]map[string]any{{"old": "b", "new": strings.Repeat("x", 9<<20)}}, problem.TooLarge},
	} {
		if err := edit(c.edits...); problem.CodeOf(err) != c.code || v.get("f") != "a b a\n" {
			t.Errorf("%s: %v, %q", name, err, v.get("f"))
		}
	}
	if err := edit(map[string]any{"old": "a", "new": "c", "all": true}, map[string]any{"old": "c b", "new": "d"}); err != nil || v.get("f") != "d c\n" {
		t.Errorf("%v, %q", err, v.get("f"))
	}
	if info, err := os.Stat(filepath.Join(v.dir, "f")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("its mode is another: %v, %v", info, err)
	}
}

func TestReadInPieces(t *testing.T) {
	v := open(t)
	v.put("f", strings.Repeat("é", 100_000))
	var got strings.Builder
	at := 0
	for {
		raw, err := v.call("read_file", map[string]any{"path": "f", "offset": at, "max_bytes": 1001})
		if err != nil {
			t.Fatal(err)
		}
		var c files.Content
		if err := json.Unmarshal([]byte(raw), &c); err != nil || c.Base64 != "" {
			t.Fatalf("%v, %.80s", err, raw)
		}
		got.WriteString(c.Text)
		if c.Next == 0 {
			break
		}
		at = int(c.Next)
	}
	if got.String() != strings.Repeat("é", 100_000) {
		t.Errorf("%d bytes", got.Len())
	}
}

// What is only to be read is not written, and what is outside is not even looked at.
func TestRoots(t *testing.T) {
	v := open(t)
	path := filepath.Join(v.data, "d")
	if err := os.WriteFile(path, []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := v.call("read_file", map[string]any{"path": path}); err != nil || !strings.Contains(out, `"text":"data"`) {
		t.Errorf("%s, %v", out, err)
	}
	for tool, args := range map[string]map[string]any{
		"write_file":  {"path": path, "content": "x"},
		"edit_file":   {"path": path, "edits": []map[string]any{{"old": "data", "new": "x"}}},
		"apply_patch": {"patch": "--- " + path + "\n+++ " + path + "\n@@ -1 +1 @@\n-data\n+x\n"},
	} {
		if _, err := v.call(tool, args); err == nil {
			t.Errorf("%s changes a root that is only to be read", tool)
		}
	}
	for _, path := range []string{"/", "..", "../x", "/etc/passwd", v.dir + "/../x", v.dir + "x", "a/../../x", strings.Repeat("a/", 3000), "a\x00b"} {
		for _, tool := range []string{"read_file", "list", "glob", "grep"} {
			if out, err := v.call(tool, map[string]any{"path": path, "pattern": "x"}); err == nil {
				t.Errorf("%s of %.40q: %s", tool, path, out)
			}
		}
	}
	if raw, _ := os.ReadFile(path); string(raw) != "data" {
		t.Errorf("it is %q", raw)
	}
}

func TestGrepAndGlob(t *testing.T) {
	v := open(t)
	v.put("src/a.go", "package a\nfunc A() {}\n")
	v.put("src/deep/b.go", "package b\n")
	v.put("src/c.txt", "package c\n")
	v.put(".git/config", "package git\n")
	v.put("bin", "package\x00")
	v.put("long", strings.Repeat("x", 5<<20)+"package\n")
	out, err := v.call("grep", map[string]any{"pattern": "^package [a-z]$", "glob": "*.go"})
	if err != nil || !strings.Contains(out, `"src/a.go"`) || !strings.Contains(out, `"src/deep/b.go"`) || strings.Contains(out, "c.txt") || strings.Contains(out, ".git") {
		t.Errorf("%s, %v", out, err)
	}
	if out, err = v.call("grep", map[string]any{"pattern": "package"}); err != nil || strings.Contains(out, `"bin"`) || !strings.Contains(out, `"long"`) || len(out) > 4000 {
		t.Errorf("%.500s, %v", out, err)
	}
	if out, err = v.call("glob", map[string]any{"pattern": "**/*.go"}); err != nil || !strings.Contains(out, "a.go") || !strings.Contains(out, "b.go") || strings.Contains(out, "c.txt") {
		t.Errorf("%s, %v", out, err)
	}
	if out, err = v.call("glob", map[string]any{"pattern": "*.go", "path": "src"}); err != nil || !strings.Contains(out, "a.go") || strings.Contains(out, "b.go") {
		t.Errorf("%s, %v", out, err)
	}
	if out, err = v.call("grep", map[string]any{"pattern": "func", "path": "src/a.go"}); err != nil || !strings.Contains(out, `"line":2`) {
		t.Errorf("%s, %v", out, err)
	}
}

// FuzzFind: no path leads outside, whatever it is made of.
func FuzzFind(f *testing.F) {
	for _, seed := range []string{"a", "../a", "/etc/passwd", "a/../../b", "//x", "./.", "\xff", "a\x00"} {
		f.Add(seed)
	}
	dir := f.TempDir()
	inner := filepath.Join(dir, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		f.Fatal(err)
	}
	tree, err := files.Open([]files.Root{{Path: inner, Write: true}}, 0, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(tree.Close)
	f.Fuzz(func(t *testing.T, path string) {
		raw, err := json.Marshal(map[string]string{"path": path, "content": "x"})
		if err != nil {
			t.Skip()
		}
		_, _ = tree.Call(t.Context(), "write_file", raw) // what it says is not the point
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%q wrote outside: %v", path, entries)
		}
		inside, err := os.ReadDir(inner)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range inside {
			if err := os.RemoveAll(filepath.Join(inner, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	})
}
