package page

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMarkdown(t *testing.T) {
	for name, c := range map[string]struct{ html, markdown, plain string }{
		"paragraphs":      {"<title>no</title><h1>A <em>title</em></h1><p>One\n  two.</p><p>Three<br>four", "# A *title*\n\nOne two.\n\nThree\nfour", "A title\n\nOne two.\n\nThree\nfour"},
		"inline":          {"a<b> bold </b>b <i></i><strong>x<b>y</b></strong>, <code>a`b</code> <del>no</del>", "a **bold** b **xy**, `` a`b `` ~~no~~", "a bold b xy, a`b no"},
		"links":           {`<a href="/x?a=(1)">see <b>this</b></a> <a href="javascript:alert(1)">no</a> <a href="#top">top</a> <a href="u"></a><a href="mailto:a@b.c">mail</a>`, "[see **this**](https://e.test/x?a=%281%29) no top [mail](mailto:a@b.c)", "see this no top mail"},
		"images":          {`<img src="i.png" alt="A  chart"><img src="x.png"><img alt="inline" src="data:image/png;base64,AAAA">`, "![A chart](https://e.test/d/i.png)inline", "A chartinline"},
		"lists":           {"<ul><li>one<li><p>two</p><p>more</p><ol><li>a<li>b<br>c</ol><li></ul><p>after", "- one\n- two\n\n  more\n\n  1. a\n  2. b\n     c\n\nafter", "- one\n- two\n\n  more\n\n  1. a\n  2. b\n     c\n\nafter"},
		"quotes":          {"<blockquote><p>a</p><p>b</p><blockquote>c</blockquote></blockquote>d", "> a\n>\n> b\n>\n> > c\n\nd", "a\n\nb\n\nc\n\nd"},
		"code":            {"<pre><code class=\"hljs language-go\">if a &lt; b {\n\n\tx\n}\n</code></pre><pre>```</pre>", "```go\nif a < b {\n\n\tx\n}\n```\n\n````\n```\n````", "if a < b {\n\n\tx\n}\n\n```"},
		"a table":         {"<table><caption>T</caption><tr><th>A<th>B|C</tr><tr><td><p>1</p><p>2</p><td><ul><li>x</ul></tr></table>z", "T\n| A | B\\|C |\n| --- | --- |\n| 1 2 | x |\n\nz", "T\nA\tB|C\n1 2\tx\n\nz"},
		"entities":        {"&lt;script&gt; &amp;amp; &copy; &#x41; &nbsp;| *a* [b] snake_case _c_ 2 < 3 ~~", "\\<script> &amp; © A \u00a0| \\*a\\* \\[b\\] snake_case \\_c\\_ 2 \\< 3 \\~~", "<script> &amp; © A \u00a0| *a* [b] snake_case _c_ 2 < 3 ~~"},
		"looks like mark": {"<p># a</p><p>1. b</p><p>- c</p><p>&gt; d</p><p>--- e", "\\# a\n\n1\\. b\n\n\\- c\n\n\\> d\n\n\\--- e", "# a\n\n1. b\n\n- c\n\n> d\n\n--- e"},
		"dropped":         {"<p>a<script>evil()</script><style>p{}</style><noscript>n</noscript><template>t</template><svg><text>s</text></svg><!-- c --><iframe src=x>i</iframe><span hidden>h</span>b<textarea>t</textarea>", "ab", "ab"},
		"nothing":         {"", "", ""},
		"no HTML":         {"just text", "just text", "just text"},
	} {
		got, err := Markdown([]byte(c.html), "text/html; charset=utf-8", "https://e.test/d/")
		if err != nil || got != c.markdown {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, c.markdown)
		}
		if got, err := Plain([]byte(c.html), "text/html"); err != nil || got != c.plain {
			t.Errorf("%s, plain: %v\n%s\nwant\n%s", name, err, got, c.plain)
		}
	}
}

func TestCharsets(t *testing.T) {
	for name, c := range map[string]struct {
		body, kind, want string
		markdown         bool
	}{
		"UTF-8 without a word":       {"h\xc3\xa9", "text/plain", "hé", false},
		"not UTF-8":                  {"h\xe9", "text/plain", "h\uFFFD", false},
		"Latin-1":                    {"h\xe9", "text/plain; charset=ISO-8859-1", "hé", false},
		"Shift JIS":                  {"\x93\xfa\x96\x7b", "text/plain; charset=Shift_JIS", "日本", false},
		"UTF-16":                     {"h\x00\xe9\x00", "text/plain; charset=utf-16le", "hé", false},
		"a mark goes first":          {"\uFEFFh\u00e9", "text/plain; charset=iso-8859-1", "hé", false},
		"unknown":                    {"a", "text/plain; charset=x-nope", "error", false},
		"replacement":                {"a", "text/plain; charset=iso-2022-kr", "error", false},
		"a header that is none":      {"h\xc3\xa9", ";;;", "hé", false},
		"the page's own word":        {"<meta charset=windows-1251><p>\xcf\xf0\xe8", "text/html", "При", true},
		"UTF-8 page without a word":  {"<p>h\xc3\xa9 " + strings.Repeat("x", 2000), "text/html", "hé " + strings.Repeat("x", 2000), true},
		"the header before the page": {"<meta charset=windows-1251><p>h\xc3\xa9", "text/html; charset=utf-8", "hé", true},
		"JSON stays":                 {`{"a":"<b>"}`, "application/json", `{"a":"<b>"}`, true},
		"text stays":                 {"a <b>", "text/plain", "a <b>", true},
		"bytes are refused":          {"\x89PNG", "image/png", "error", true},
		"no type, HTML":              {"\n<p>x", "", "x", true},
		"no type, text":              {"x < y", "", "x < y", true},
	} {
		read := Text
		if c.markdown {
			read = Plain
		}
		got, err := read([]byte(c.body), c.kind)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// What has broken readers of HTML before. The text is bounded, however it is nested, and it is valid.
func TestHostilePages(t *testing.T) {
	for name, page := range map[string]string{
		"deep divs":        strings.Repeat("<div>", 300_000),
		"deep marks":       strings.Repeat("<b>", 300_000) + "x",
		"deep lists":       strings.Repeat("<ul><li>", 240) + strings.Repeat("x<br>", 20_000),
		"deep quotes":      strings.Repeat("<blockquote>", 480) + strings.Repeat("x<br>", 20_000),
		"deep tables":      strings.Repeat("<table><tr><td>", 120) + "x",
		"marks everywhere": strings.Repeat("<b><i>", 200) + strings.Repeat("<p>x", 10_000),
		"open links":       strings.Repeat("<a href=x>y", 20_000),
		"a huge attribute": `<a href="` + strings.Repeat("x", 1<<20) + `">y</a>`,
		"many attributes":  "<p " + strings.Repeat("a=b ", 50_000) + ">y",
		"many cells":       "<table><tr>" + strings.Repeat("<td>x", 50_000),
		"backticks":        "<pre>" + strings.Repeat("`", 1<<20) + "</pre><code>" + strings.Repeat("a`", 1<<17) + "</code>",
		"white space":      strings.Repeat(" \n", 1<<17),
		"one word":         strings.Repeat("_*[", 1<<17),
		"many lines":       "<ul><li>" + strings.Repeat("<br>x", 60_000),
		"no end":           "<!--" + strings.Repeat("x", 1<<20),
		"nested forms":     strings.Repeat("<form><input><button>", 10_000),
		"too large":        strings.Repeat("x", MaxPage+1),
		"zeros":            strings.Repeat("\x00", 1<<20),
		"bad UTF-8":        strings.Repeat("<p>\xff\xfe", 20_000),
	} {
		for _, marks := range []bool{true, false} {
			got, err := convert([]byte(page), "text/html", "https://e.test/", marks)
			if len(got) > MaxText+(64<<10) || !utf8.ValidString(got) {
				t.Errorf("%s: %d bytes", name, len(got))
			}
			if (name == "too large" || strings.HasPrefix(name, "deep divs") || name == "deep marks") != (err != nil) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func FuzzMarkdown(f *testing.F) {
	f.Add("<ul><li><p>a<table><tr><td>b</ul><pre>c", true)
	f.Add("<a href='//x'><img alt=y src=z><b><i>q</b></i>", false)
	f.Fuzz(func(t *testing.T, page string, marks bool) {
		got, err := convert([]byte(page), "text/html", "https://e.test/a/", marks)
		if err == nil && !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
		if len(got) > 80*len(page)+100 {
			t.Errorf("%d bytes became %d", len(page), len(got))
		}
		if strings.Contains(got, "](javascript:") || strings.Contains(got, "](data:") {
			t.Errorf("%q", got)
		}
	})
}
