package apipackage

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

// Index finds operations by words, for packages with more of them than a model can be shown.
type Index struct {
	pkg    *Package
	words  map[string][]posting
	length []int // of an operation's name and path, in words
}

// posting says how much a word says about an operation.
type posting struct {
	operation int
	weight    float64
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
	inRoute       = 2.0
	inTag         = 2.0
	inDescription = 1.0
)

// maxHits is how many operations a search gives at most.
const maxHits = 50

// NewIndex makes the index of a package.
func NewIndex(p *Package) *Index {
	x := &Index{pkg: p, words: map[string][]posting{}}
	for i := range p.Operations {
		o := &p.Operations[i]
		weights := map[string]float64{}
		add := func(text string, weight float64) {
			for _, w := range wordsOf(text) {
				weights[w] = max(weights[w], weight)
			}
		}
		title, _, _ := strings.Cut(o.Description, "\n")
		add(title, inTitle)
		add(o.Description, inDescription)
		add(o.Route(), inRoute)
		add(strings.Join(o.Tags, " "), inTag)
		add(o.Tool, inName)
		add(o.ID, inName)
		x.length = append(x.length, len(wordsOf(o.Tool))+len(wordsOf(o.Route())))
		for w, weight := range weights {
			x.words[w] = append(x.words[w], posting{i, weight})
		}
	}
	return x
}

// Search gives the operations that a query's words say most about, the best first. A rare word counts more; a word that
// begins another one counts half.
func (x *Index) Search(query string, limit int) []Hit {
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
				said[p.operation] = max(said[p.operation], part*p.weight)
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
		rare := math.Log(1 + float64(len(x.pkg.Operations))/float64(max(len(said), 1)))
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
	hits := make([]Hit, 0, min(len(found), limit))
	for _, i := range found[:min(len(found), limit)] {
		o := &x.pkg.Operations[i]
		hits = append(hits, Hit{o.Tool, clip(o.Description, maxArgDescription), o.Effect, o.Writes})
	}
	return hits
}

// Describe gives one operation as the tool that it is.
func (x *Index) Describe(tool string) (connection.Tool, error) {
	o, ok := x.pkg.Operation(tool)
	if !ok {
		return connection.Tool{}, problem.New(problem.NotFound, "there is no operation %.80q; search_operations finds them", tool)
	}
	schema, err := json.Marshal(x.pkg.inputOf(o))
	if err != nil {
		return connection.Tool{}, problem.Wrap(err, problem.Internal, "the schema of %s cannot be written", tool)
	}
	return connection.Tool{Name: o.Tool, Description: o.Description, Schema: schema, Effect: o.Effect, Writes: o.Writes}, nil
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
