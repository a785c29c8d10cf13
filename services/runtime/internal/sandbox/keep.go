package sandbox

import (
	"context"
	"fmt"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

type (
	// Search asks what the script may call: by Query, or of one Tool.
	Search = wire.Search
	// Artifact is one operation on the artifacts of the script's session.
	Artifact = wire.Artifact
	// Kept answers an Artifact.
	Kept = wire.Kept
)

// The operations of an Artifact.
const (
	PutArtifact    = "put"
	GetArtifact    = "get"
	ListArtifacts  = "list"
	DeleteArtifact = "delete"
)

// CodeArtifactTooLarge is for a value that is not kept because of its size, or of what is kept already.
const CodeArtifactTooLarge = "artifact_too_large"

// maxSearch is the longest query or name of a search, in bytes.
const maxSearch = 1 << 10

func (s *session) onSearch(ctx context.Context, body []byte) error {
	var q wire.Search
	if err := wire.Decode(body, &q); err != nil {
		return err
	}
	switch s.sought++; {
	case s.sought > s.limits.Searches:
		return fmt.Errorf("%w: more than %d searches", wire.ErrProtocol, s.limits.Searches)
	case len(q.Query) > maxSearch || len(q.Tool) > maxSearch || (q.Query == "") == (q.Tool == ""):
		return fmt.Errorf("%w: a search that the engine does not make", wire.ErrProtocol)
	}
	return s.request(ctx, q.Seq, func() (wire.Reply, error) {
		value, err := s.host.SearchTools(ctx, q)
		if err == nil && len(value) > s.limits.Result {
			err = problem.New(problem.Internal, "what there is to say of the tools is %d bytes", len(value))
		}
		return wire.Reply{Value: value}, err
	})
}

// onArtifact has the host do the operations one after the other, so that each sees those before it.
func (s *session) onArtifact(ctx context.Context, body []byte) error {
	var a wire.Artifact
	if err := wire.Decode(body, &a); err != nil {
		return err
	}
	switch s.kept++; {
	case s.kept > s.limits.Keeps:
		return fmt.Errorf("%w: more than %d operations on artifacts", wire.ErrProtocol, s.limits.Keeps)
	case len(a.Body) > s.limits.Artifact:
		return fmt.Errorf("%w: an artifact of %d bytes", wire.ErrProtocol, len(a.Body))
	case a.Op == PutArtifact && a.Type != "text" && a.Type != "json" && a.Type != "bytes":
		return fmt.Errorf("%w: an artifact of type %.20q", wire.ErrProtocol, a.Type)
	}
	before, over := s.before, make(chan struct{})
	s.before = over
	return s.requestAfter(ctx, before, a.Seq, func() (wire.Reply, error) {
		defer close(over)
		kept, err := s.host.Artifact(ctx, a)
		if _, end := aborted(err); err != nil && !end && problem.CodeOf(err) == problem.TooLarge {
			p := problemOf(err)
			p.Code = CodeArtifactTooLarge
			return wire.Reply{Problem: p}, nil
		}
		return wire.Reply{Kept: &kept}, err
	})
}
