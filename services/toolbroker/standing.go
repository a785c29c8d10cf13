package toolbroker

import (
	"context"
	"time"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/id"
)

// voters reads who approved a digest: those who voted, and the one whose decision it was; and until when it is good.
func (s *Service) voters(ctx context.Context, tenant id.Tenant, a id.Approval, digest string) (out []id.Member, until time.Time, err error) {
	filter := schemas.SubjectOf(tenant, approval.Decided{}.Kind(), string(a), "").Filter()
	for e, err := range s.deps.Log.Read(ctx, schemas.Activity, filter, 1) {
		if err != nil {
			return nil, until, err
		}
		ev, err := e.Envelope.Decode()
		if err != nil {
			continue // of a version that this program does not know
		}
		switch ev := ev.(type) {
		case approval.Requested:
			until = ev.ExpiresAt
		case approval.Edited:
			out = nil // votes before it were about other arguments, also when it brings those back
		case approval.Voted:
			if ev.Digest == digest {
				out = append(out, ev.By)
			}
		case approval.Decided:
			if ev.Digest == digest && ev.Approved {
				return append(out, ev.By), until, nil // the first decision counts
			}
		}
	}
	return out, until, nil
}

// standing says whether enough of those who approved a call may approve it still, at the moment of its dispatch, and
// whether enough of them may grant as much as the rest of the run: one may have been removed or narrowed since, while the
// broker was away.
func (s *Service) standing(a question) (approve, grant bool) {
	left, granting := map[id.Member]bool{}, map[id.Member]bool{}
	for _, m := range a.voters {
		role := s.state.Role(a.tenant, m)
		if role.MayDecide(a.approver) {
			left[m] = true
			if role.MayConfigure() {
				granting[m] = true
			}
		}
	}
	return len(left) >= a.quorum, len(granting) >= a.quorum
}
