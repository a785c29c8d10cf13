package runtime

import (
	"context"
	"maps"
	"slices"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/artifact"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
)

// there folds what is kept now for a session, a run of one, or a conversation.
func (s *Service) there(ctx context.Context, who rpc.Caller, of string) (owner string, all map[string]change, err error) {
	if !validOwner(of) {
		return "", nil, problem.New(problem.Invalid, "%.80q is not the id of a session, a run or a conversation", of)
	}
	owner = of
	if r, err := id.Parse[id.Run](of); err == nil {
		if owner, err = ownerOf(ctx, s.deps.Log, who.Tenant, r); err != nil {
			return "", nil, err
		}
	}
	changes, err := readChanges(ctx, s.deps.Log, who.Tenant, owner, 1)
	return owner, kept(changes, nil), err
}

func listedAs(c change) ask.Artifact {
	k := c.event.(artifact.Kept) // kept holds no other
	return ask.Artifact{Name: k.Name, Type: k.Type, Size: k.Size, Digest: k.Digest, Run: k.Run, Call: k.Call, KeptAt: c.stored, Taint: k.Taint}
}

func (s *Service) listArtifacts(ctx context.Context, who rpc.Caller, q ask.ListArtifacts) (ask.Artifacts, error) {
	owner, all, err := s.there(ctx, who, q.Of)
	out := ask.Artifacts{Owner: owner, Artifacts: []ask.Artifact{}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out.Artifacts = append(out.Artifacts, listedAs(all[name]))
	}
	return out, err
}

// inAnswer is the largest value that an answer holds, in bytes.
const inAnswer = 512 << 10

func (s *Service) getArtifact(ctx context.Context, who rpc.Caller, q ask.GetArtifact) (ask.GotArtifact, error) {
	owner, all, err := s.there(ctx, who, q.Of)
	if err != nil {
		return ask.GotArtifact{}, err
	}
	c, ok := all[q.Name]
	if !ok {
		return ask.GotArtifact{}, problem.New(problem.NotFound, "%s keeps no artifact %.128q", owner, q.Name)
	}
	k, err := readKept(ctx, s.deps.Log, c)
	if err != nil {
		return ask.GotArtifact{}, err
	}
	out := ask.GotArtifact{Artifact: listedAs(c)}
	if len(k.Body.Value) <= inAnswer {
		out.Value = k.Body.Value
		return out, nil
	}
	out.Upload, err = s.deps.Log.PutUpload(ctx, who.Tenant, k.Body.Value)
	return out, err
}
