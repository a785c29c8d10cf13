package folded

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

// Index finds a connection's tools by words.
type Index struct {
	tools  []connection.Tool
	words  map[string][]posting
	length []int // of a tool's name, in words
}

// posting says how much a word says about a tool.
type posting struct {
	tool   int
	weight float64
}

// Hit is an operation that was found.
type Hit struct {
	Tool        string            `json:"tool"`
	Description string            `json:"description"`
	Effect      connection.Effect `json:"effect"`
	Writes      bool              `json:"writes"`
}

// The weight of a word by where it stands.
const (
	inName        = 4.0
	inTitle       = 3.0 // the first line of the description
	inDescription = 1.0
)

// maxHits is how many operations a search gives at most.
const maxHits = 50

// maxShown is how much of a description a search shows, in bytes.
const maxShown = 300

// NewIndex makes the index of a connection's tools.
func NewIndex(tools []connection.Tool) *Index {
	x := &Index{tools: tools, words: map[string][]posting{}}
	for i, t := range tools {
		weights := map[string]float64{}
		add := func(text string, weight float64) {
			for _, w := range wordsOf(text) {
				weights[w] = max(weights[w], weight)
			}
		}
		title, _, _ := strings.Cut(t.Description, "\n")
		add(title, inTitle)
		add(t.Description, inDescription)
		add(t.Name, inName)
		x.length = append(x.length, len(wordsOf(t.Name))+len(wordsOf(title)))
		for w, weight := range weights {
			x.words[w] = append(x.words[w], posting{i, weight})
		}
	}
	return x
}

// Search gives the tools that a query's words say most about, of those that are allowed, the best first. A rare word counts
// more; a word that begins another one counts half.
func (x *Index) Search(query string, limit int, allowed func(string) bool) []Hit {
	if limit <= 0 || limit > maxHits {
		limit = maxHits
	}
	asked := wordsOf(query)
	slices.Sort(asked)
	asked = slices.Compact(asked)
	scores := map[int]float64{}
	for _, w := range asked[:min(len(asked), 32)] {
		said := map[int]float64{}
		count := func(postings []posting, part float64) {
			for _, p := range postings {
				said[p.tool] = max(said[p.tool], part*p.weight)
			}
		}
		count(x.words[w], 1)
		if len(w) >= 3 {
			for known, postings := range x.words {
				if known != w && (strings.HasPrefix(known, w) || len(known) >= 3 && strings.HasPrefix(w, known)) {
					count(postings, 0.5)
				}
			}
		}
		rare := math.Log(1 + float64(len(x.tools))/float64(max(len(said), 1)))
		for i, weight := range said {
			scores[i] += rare * weight
		}
	}
	for i := range scores { // of two that say the same, the one that says little else
		scores[i] /= math.Sqrt(float64(x.length[i] + 4))
	}
	found := make([]int, 0, len(scores))
	for i := range scores {
		found = append(found, i)
	}
	slices.SortFunc(found, func(a, b int) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b)) })
	hits := []Hit{}
	for _, i := range found {
		if t := x.tools[i]; len(hits) < limit && allowed(t.Name) {
			hits = append(hits, Hit{t.Name, shorten(t.Description), t.Effect, t.Writes})
		}
	}
	return hits
}

// Describe gives one tool, if it is allowed.
func (x *Index) Describe(tool string, allowed func(string) bool) (connection.Tool, error) {
	i := slices.IndexFunc(x.tools, func(t connection.Tool) bool { return t.Name == tool })
	if i < 0 || !allowed(tool) {
		return connection.Tool{}, problem.New(problem.NotFound, "there is no operation %.80q that this agent may call; %s finds them", tool, connection.SearchOperations)
	}
	return x.tools[i], nil
}

// shorten cuts a description at a character's border.
func shorten(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "…"
}

// wordsOf takes a text apart at everything that is no letter or digit, and where an upper case letter begins a word.
func wordsOf(text string) []string {
	var out []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			out = append(out, stem(strings.ToLower(string(word))))
			word = word[:0]
		}
	}
	lower := false
	for _, r := range text {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
			lower = false
			continue
		case unicode.IsUpper(r) && lower:
			end()
		}
		lower = !unicode.IsUpper(r)
		word = append(word, r)
	}
	end()
	return out
}

// stem takes a plural's s away, so that issues finds issue.
func stem(w string) string {
	if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
		return w[:len(w)-1]
	}
	return w
}
