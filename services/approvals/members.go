package approvals

import (
	"slices"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/approvals/internal/book"
)

// standing is the role in which a member acts now: at most that in which the gateway let them in. Between its check and
// this one they may have been removed or narrowed. Problems: denied, unavailable (a removal may not be heard yet).
func (s *Service) standing(tenant id.Tenant, who id.Member, as member.Role) (member.Role, error) {
	if err := s.view.Current(); err != nil {
		return "", err
	}
	role, there := s.roleNow(tenant, who, as)
	if !there {
		return "", problem.New(problem.Denied, "%s is not a member any more", who)
	}
	return role, nil
}

// roleNow is the narrower of a role and the member's own, as far as the control stream was heard.
func (s *Service) roleNow(tenant id.Tenant, who id.Member, as member.Role) (_ member.Role, there bool) {
	if _, gone := s.removed.Get(tenant, string(who)); gone {
		return "", false
	}
	if now, known := s.added.Get(tenant, string(who)); known {
		as = member.Narrower(as, now.Role)
	}
	return as, true
}

// counting keeps the votes of those who may still vote: a member who was removed or narrowed since completes no quorum.
func (s *Service) counting(tenant id.Tenant, votes []id.Member, least member.Role) []id.Member {
	return slices.DeleteFunc(slices.Clone(votes), func(who id.Member) bool {
		role, there := s.roleNow(tenant, who, member.Owner)
		return !there || !role.MayDecide(least)
	})
}

// count leaves out of an approval the votes that do not count any more.
func (s *Service) count(tenant id.Tenant, state *book.State) {
	if state.Requested != nil {
		state.Votes = s.counting(tenant, state.Votes, state.Waits().Approver)
		state.ForRun = slices.DeleteFunc(s.counting(tenant, state.ForRun, state.Waits().Approver), func(who id.Member) bool {
			role, _ := s.roleNow(tenant, who, member.Owner)
			return !role.MayConfigure() // they may approve a call still, and grant nothing
		})
	}
}
