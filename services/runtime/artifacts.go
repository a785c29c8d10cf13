package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/standing"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/artifact"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox"
)

// artifactName is what an artifact may be called. It is shown to people and becomes a file's name, never a path.
var artifactName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// change is one event of an owner's artifacts, without the value.
type change struct {
	seq    uint64
	stored time.Time
	event  schemas.Event
	at     artifact.Origin
}

// shelf is the artifacts that a script sees: as they were when it was admitted, and what it changed since. So they are
// the same when it is run again, whatever other scripts of the session did meanwhile.
type shelf struct {
	mu      sync.Mutex // one operation at a time; the pool has them in the order of the script
	owner   string
	changes []change
	last    uint64
}

// readChanges gives an owner's changes from a sequence on.
func readChanges(ctx context.Context, log *eventlog.Log, tenant id.Tenant, owner string, from uint64) (out []change, err error) {
	filter := schemas.SubjectOf(tenant, artifact.Kept{}.Kind(), owner, "").Filter()
	for e, err := range log.ReadApart(ctx, schemas.Activity, filter, from) {
		if err != nil {
			return nil, err
		}
		ev, _ := e.Envelope.Decode() // one that this version does not know changes nothing, and is counted all the same
		c := change{seq: e.Seq, stored: e.StoredAt.UTC(), event: ev}
		switch ev := ev.(type) {
		case artifact.Kept:
			ev.Body = artifact.Value{}
			c.event, c.at = ev, ev.Origin
		case artifact.Removed:
			c.at = ev.Origin
		case artifact.Refused:
			c.at = ev.Origin
		}
		out = append(out, c)
	}
	return out, nil
}

// kept folds changes into what is there, by name.
func kept(changes []change, counts func(change) bool) map[string]change {
	out := map[string]change{}
	for _, c := range changes {
		if counts != nil && !counts(c) {
			continue
		}
		switch ev := c.event.(type) {
		case artifact.Kept:
			out[ev.Name] = c
		case artifact.Removed:
			delete(out, ev.Name)
		}
	}
	return out
}

// ownerOf gives the session that a run belongs to; of a run or conversation in none, itself.
func ownerOf(ctx context.Context, log *eventlog.Log, tenant id.Tenant, r id.Run) (string, error) {
	session, err := standing.SessionOf(ctx, log, tenant, r)
	if err != nil || session != "" {
		return string(session), err
	}
	return string(r), nil
}

// refresh reads what is new.
func (h *host) refresh(ctx context.Context) (err error) {
	s := &h.shelf
	owner := s.owner
	if owner == "" {
		if owner, err = ownerOf(ctx, h.s.deps.Log, h.w.Tenant, h.w.Admitted.Run); err != nil {
			return err
		}
	}
	more, err := readChanges(ctx, h.s.deps.Log, h.w.Tenant, owner, s.last+1)
	if err != nil {
		return err
	}
	s.owner = owner
	if s.changes = append(s.changes, more...); len(more) > 0 {
		s.last = more[len(more)-1].seq
	}
	return nil
}

// visible is what the script sees at one of its operations.
func (h *host) visible(seq int) map[string]change {
	return kept(h.shelf.changes, func(c change) bool {
		return c.seq < h.w.Seq || c.at.Call == h.w.Admitted.Call && c.at.Seq < seq
	})
}

// own finds what an earlier attempt recorded for an operation.
func (h *host) own(seq int) (change, bool) {
	i := slices.IndexFunc(h.shelf.changes, func(c change) bool { return c.at.Call == h.w.Admitted.Call && c.at.Seq == seq })
	if i < 0 {
		return change{}, false
	}
	return h.shelf.changes[i], true
}

// Artifact implements sandbox.Host.
func (h *host) Artifact(ctx context.Context, a sandbox.Artifact) (sandbox.Kept, error) {
	h.shelf.mu.Lock()
	defer h.shelf.mu.Unlock()
	if err := h.order.askElse(a.Seq, aKeep); err != nil {
		return sandbox.Kept{}, err
	}
	// What a script sees does not change by what others do; what there is room for does.
	if changes := a.Op == sandbox.PutArtifact || a.Op == sandbox.DeleteArtifact; changes || h.shelf.owner == "" {
		if err := h.refresh(ctx); err != nil {
			return sandbox.Kept{}, sandbox.Abort(err)
		}
	}
	if a.Op == sandbox.ListArtifacts {
		return h.listed(a.Seq)
	}
	if !artifactName.MatchString(a.Name) {
		return sandbox.Kept{}, problem.New(problem.Invalid, "an artifact's name has 1 to 128 of A-Z, a-z, 0-9, '.', '_' and '-', and starts with a letter or digit")
	}
	switch a.Op {
	case sandbox.GetArtifact:
		return h.got(ctx, a)
	case sandbox.PutArtifact:
		return h.put(ctx, a)
	case sandbox.DeleteArtifact:
		return h.deleted(ctx, a)
	}
	return sandbox.Kept{}, problem.New(problem.Internal, "there is no such operation")
}

// entry is an artifact as scripts see it.
type entry struct {
	Name   string        `json:"name"`
	Type   artifact.Type `json:"type"`
	Size   int           `json:"size"`
	Digest string        `json:"digest"`
}

func entryOf(k artifact.Kept) entry { return entry{k.Name, k.Type, k.Size, k.Digest} }

func answer(v any) (sandbox.Kept, error) {
	raw, err := json.Marshal(v)
	return sandbox.Kept{Value: raw}, err
}

// listed gives names too, which a script chose: they taint like what is under them.
func (h *host) listed(seq int) (sandbox.Kept, error) {
	there := h.visible(seq)
	list := []entry{}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		k := there[name].event.(artifact.Kept) // kept holds no other
		h.addTaint(k.Taint...)
		list = append(list, entryOf(k))
	}
	return answer(list)
}

func (h *host) got(ctx context.Context, a sandbox.Artifact) (sandbox.Kept, error) {
	c, ok := h.visible(a.Seq)[a.Name]
	if !ok {
		return sandbox.Kept{Value: json.RawMessage("null")}, nil
	}
	k, err := readKept(ctx, h.s.deps.Log, c)
	if err != nil {
		return sandbox.Kept{}, sandbox.Abort(err)
	}
	h.addTaint(k.Taint...)
	return sandbox.Kept{Type: string(k.Type), Body: k.Body.Value}, nil
}

func readKept(ctx context.Context, log *eventlog.Log, c change) (artifact.Kept, error) {
	e, err := log.ReadAt(ctx, schemas.Activity, c.seq)
	if err != nil {
		return artifact.Kept{}, err
	}
	ev, err := e.Envelope.Decode()
	if err != nil {
		return artifact.Kept{}, err
	}
	k, ok := ev.(artifact.Kept)
	if !ok {
		return artifact.Kept{}, problem.New(problem.Internal, "there is no artifact at %d", c.seq)
	}
	return k, nil
}

// put keeps a value, or records that it was refused: either way the script is answered the same when it is run again.
func (h *host) put(ctx context.Context, a sandbox.Artifact) (sandbox.Kept, error) {
	sum := sha256.Sum256(a.Body)
	digest := hex.EncodeToString(sum[:])
	at := artifact.Origin{Owner: h.shelf.owner, Run: h.w.Admitted.Run, Call: h.w.Admitted.Call, Seq: a.Seq}
	now := artifact.Kept{Origin: at, Name: a.Name, Type: artifact.Type(a.Type), Size: len(a.Body), Digest: digest, Taint: h.tainted(), Body: artifact.Value{Value: a.Body}}
	return h.changed(ctx, at, func() schemas.Event {
		if err := h.room(a); err != nil {
			d := problem.DetailOf(err)
			return artifact.Refused{Origin: at, Name: a.Name, Digest: digest, Code: string(d.Code), Message: d.Message}
		}
		return now
	}, func(before schemas.Event) bool {
		switch before := before.(type) {
		case artifact.Kept:
			return before.Name == a.Name && before.Digest == digest && before.Type == now.Type
		case artifact.Refused:
			return before.Name == a.Name && before.Digest == digest
		}
		return false
	})
}

func (h *host) deleted(ctx context.Context, a sandbox.Artifact) (sandbox.Kept, error) {
	if _, ok := h.visible(a.Seq)[a.Name]; !ok {
		return sandbox.Kept{Value: json.RawMessage("false")}, nil
	}
	gone := artifact.Removed{Origin: artifact.Origin{Owner: h.shelf.owner, Run: h.w.Admitted.Run, Call: h.w.Admitted.Call, Seq: a.Seq}, Name: a.Name}
	return h.changed(ctx, gone.Origin, func() schemas.Event { return gone }, func(before schemas.Event) bool { return before == schemas.Event(gone) })
}

// changed records a change once, by compare-and-swap with the changes that other scripts of the session make.
func (h *host) changed(ctx context.Context, at artifact.Origin, made func() schemas.Event, same func(schemas.Event) bool) (sandbox.Kept, error) {
	for range maxRaces {
		if before, ok := h.own(at.Seq); ok {
			if !same(before.event) {
				return sandbox.Kept{}, diverged("kept or removed something else here before")
			}
			return changeAnswer(before.event)
		}
		d := h.draft(made(), strconv.Itoa(at.Seq))
		value, _ := d.Event.(artifact.Kept)
		d.Key, d.Apart = h.shelf.owner, value.Size > inEvent
		seq, err := h.s.deps.Log.AppendAfter(ctx, d, h.shelf.last)
		// A crash here leaves the change recorded: the script, run again, finds it as its own.
		if err != nil && problem.CodeOf(err) != problem.Conflict {
			return sandbox.Kept{}, sandbox.Abort(err)
		}
		if err := h.refresh(ctx); err != nil {
			return sandbox.Kept{}, sandbox.Abort(err)
		}
		if err == nil && seq > h.shelf.last { // read from a replica that has not heard it yet
			if kept, ok := d.Event.(artifact.Kept); ok {
				kept.Body = artifact.Value{}
				d.Event = kept
			}
			h.shelf.changes, h.shelf.last = append(h.shelf.changes, change{seq: seq, event: d.Event, at: at}), seq
		}
	}
	return sandbox.Kept{}, sandbox.Abort(problem.New(problem.Busy, "too many scripts of the session keep artifacts at once"))
}

// inEvent is the largest value that stands in its event, in bytes: all events of a session are read for its artifacts.
const inEvent = 1 << 10

// maxRaces is how often a change is tried against those of other scripts.
const maxRaces = 50

func changeAnswer(ev schemas.Event) (sandbox.Kept, error) {
	switch ev := ev.(type) {
	case artifact.Kept:
		return answer(entryOf(ev))
	case artifact.Refused:
		return sandbox.Kept{}, problem.New(problem.Code(ev.Code), "%s", ev.Message)
	}
	return answer(true)
}

// room says why a value does not fit with what is kept now. What one script writes is bounded too, since what is replaced
// or removed stays in the record.
func (h *host) room(a sandbox.Artifact) error {
	cfg := h.s.cfg
	written := len(a.Body)
	for _, c := range h.shelf.changes {
		if k, ok := c.event.(artifact.Kept); ok && k.Call == h.w.Admitted.Call {
			written += k.Size
		}
	}
	there := kept(h.shelf.changes, nil)
	delete(there, a.Name)
	total := len(a.Body)
	for _, c := range there {
		total += c.event.(artifact.Kept).Size
	}
	switch {
	case len(a.Body) > cfg.ArtifactBytes:
		return problem.New(problem.TooLarge, "the artifact is %d bytes; the limit is %d", len(a.Body), cfg.ArtifactBytes)
	case written > cfg.ArtifactsBytes:
		return problem.New(problem.TooLarge, "the script would keep %d bytes in all; the limit of one script is %d", written, cfg.ArtifactsBytes)
	case len(there) >= cfg.Artifacts:
		return problem.New(problem.TooLarge, "the session keeps %d artifacts, which is the limit; delete one first", len(there))
	case total > cfg.ArtifactsBytes:
		return problem.New(problem.TooLarge, "the session's artifacts would be %d bytes; the limit is %d: delete one first", total, cfg.ArtifactsBytes)
	}
	return nil
}

// tainted is what the script was given so far that the tenant does not vouch for.
func (h *host) tainted() []string {
	taint := slices.Clone(h.w.Requested.Taint)
	for _, o := range h.taints() {
		if !slices.Contains(taint, o) {
			taint = append(taint, o)
		}
	}
	return taint
}

// validOwner reports whether a person may ask for artifacts of it.
func validOwner(of string) bool {
	kind, name, ok := strings.Cut(of, "_")
	return ok && id.ValidName(name) && (kind == "ses" || kind == "run" || kind == "mcp")
}
