package manifest

import (
	"net/netip"
	"net/url"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// The checks of a field. They are the servers' own, made here so that everything that is wrong is known before
// anything is changed; the servers have the last word.

// named makes the id of the document's own name.
func named[T id.ID](d *document) T { return refer[T](d, "$.name", d.header.Name) }

// refer makes the id of a thing that is named at a path.
func refer[T id.ID](d *document, path, name string) T {
	t, err := id.Named[T](name)
	if err != nil {
		d.fault(path, "%v", err)
	}
	return t
}

// reference is refer for another document's thing, which then has to be there.
func referTo[T id.ID](d *document, r *Resource, kind Kind, path, name string) T {
	r.refs = append(r.refs, reference{Key{kind, name}, d.at(path)})
	return refer[T](d, path, name)
}

func (d *document) httpURL(path, text string) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		d.fault(path, "this is not an http(s) URL without credentials")
	}
}

func (d *document) private(path string, pairs []string) {
	for _, p := range pairs {
		if _, err := netip.ParseAddrPort(p); err != nil {
			d.fault(path, "%.80q is not an address:port, such as 127.0.0.1:11434", p)
		}
	}
}

// notEmpty refuses a list that is there and has nothing in it. Where a list that is left out means no limit, one that
// came out empty by mistake must not.
func (d *document) notEmpty(path string, n int) {
	if n == 0 && d.node(path) != nil {
		d.fault(path, "this list is empty; leave it out if there is to be no such limit")
	}
}

// explain is an error's message for people.
func explain(err error) string { return problem.DetailOf(err).Message }
