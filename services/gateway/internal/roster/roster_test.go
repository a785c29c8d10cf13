package roster_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/gateway/internal/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func list(members map[id.Member]member.Role) *roster.Roster {
	r := roster.New()
	for m, role := range members {
		r.Apply(1, member.Added{Member: m, Role: role})
	}
	return &r
}

func TestWhoMayWhat(t *testing.T) {
	r := func() *roster.Roster {
		out := list(map[id.Member]member.Role{"mem_o1": member.Owner, "mem_o2": member.Owner, "mem_ad": member.Admin, "mem_ap": member.Approver, "mem_au": member.Auditor})
		out.Apply(2, member.Added{Member: "mem_gone", Role: member.Owner})
		out.Apply(3, member.Removed{Member: "mem_gone"})
		return out
	}
	owner, admin := roster.By{Member: "mem_o1", Role: member.Owner}, roster.By{Member: "mem_ad", Role: member.Admin}
	add := func(by roster.By, m id.Member, role member.Role) func(*roster.Roster) (schemas.Event, error) {
		return func(r *roster.Roster) (schemas.Event, error) { return r.Add(by, m, role) }
	}
	set := func(by roster.By, m id.Member, role member.Role) func(*roster.Roster) (schemas.Event, error) {
		return func(r *roster.Roster) (schemas.Event, error) { return r.SetRole(by, m, role) }
	}
	remove := func(by roster.By, m id.Member) func(*roster.Roster) (schemas.Event, error) {
		return func(r *roster.Roster) (schemas.Event, error) { return r.Remove(by, m, "", nil) }
	}
	for name, tc := range map[string]struct {
		do   func(*roster.Roster) (schemas.Event, error)
		want problem.Code
	}{
		"an owner makes an owner":               {add(owner, "mem_x", member.Owner), ""},
		"an admin makes an admin":               {add(admin, "mem_x", member.Admin), ""},
		"an admin makes an owner":               {add(admin, "mem_x", member.Owner), problem.Denied},
		"an approver makes an auditor":          {add(roster.By{Member: "mem_ap", Role: member.Approver}, "mem_x", member.Auditor), problem.Denied},
		"an owner by a narrow token":            {add(roster.By{Member: "mem_o1", Role: member.Auditor}, "mem_x", member.Auditor), problem.Denied},
		"an admin by an owner's old token":      {add(roster.By{Member: "mem_ad", Role: member.Owner}, "mem_x", member.Owner), problem.Denied},
		"somebody who was removed":              {add(roster.By{Member: "mem_gone", Role: member.Owner}, "mem_x", member.Auditor), problem.Unauthenticated},
		"somebody who never was":                {add(roster.By{Member: "mem_y", Role: member.Owner}, "mem_x", member.Auditor), problem.Unauthenticated},
		"a role that is none":                   {add(owner, "mem_x", "root"), problem.Invalid},
		"no role":                               {add(owner, "mem_x", ""), problem.Invalid},
		"a member again":                        {add(owner, "mem_ad", member.Auditor), problem.Conflict},
		"a removed one again":                   {add(owner, "mem_gone", member.Auditor), problem.Conflict},
		"an admin widens themselves":            {set(admin, "mem_ad", member.Owner), problem.Denied},
		"an admin narrows themselves":           {set(admin, "mem_ad", member.Auditor), ""},
		"an admin narrows an owner":             {set(admin, "mem_o1", member.Auditor), problem.Denied},
		"an admin widens an approver":           {set(admin, "mem_ap", member.Admin), ""},
		"an owner steps down":                   {set(owner, "mem_o1", member.Admin), ""},
		"an owner, by an admin token":           {set(roster.By{Member: "mem_o1", Role: member.Admin}, "mem_o2", member.Admin), problem.Denied},
		"another role for nobody":               {set(owner, "mem_y", member.Admin), problem.NotFound},
		"another role for one who was removed":  {set(owner, "mem_gone", member.Admin), problem.NotFound},
		"an admin removes an owner":             {remove(admin, "mem_o1"), problem.Denied},
		"an admin removes an admin, themselves": {remove(admin, "mem_ad"), ""},
		"an owner removes an owner":             {remove(owner, "mem_o2"), ""},
		"an owner leaves":                       {remove(owner, "mem_o1"), ""},
		"nobody is removed":                     {remove(owner, "mem_y"), problem.NotFound},
		"an approver removes":                   {remove(roster.By{Member: "mem_ap", Role: member.Approver}, "mem_au"), problem.Denied},
	} {
		ev, err := tc.do(r())
		if problem.CodeOf(err) != tc.want || (ev == nil) != (tc.want != "") {
			t.Errorf("%s: %v, %v", name, ev, err)
		}
	}
	if ev, err := r().Remove(owner, "mem_gone", "", nil); ev != nil || err != nil {
		t.Errorf("removed again: %v, %v", ev, err)
	}
	if ev, err := r().SetRole(owner, "mem_ap", member.Approver); ev != nil || err != nil {
		t.Errorf("the role that it is: %v, %v", ev, err)
	}
	last := list(map[id.Member]member.Role{"mem_o1": member.Owner, "mem_ad": member.Admin})
	if _, err := last.Remove(owner, "mem_o1", "", nil); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("the last owner leaves: %v", err)
	}
	if _, err := last.SetRole(owner, "mem_o1", member.Admin); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("the last owner steps down: %v", err)
	}
}

// Whatever is tried by whomever: an owner remains, nobody gains a role by themselves, and who is gone stays gone.
func TestAnOwnerAlwaysRemains(t *testing.T) {
	roles := []member.Role{member.Owner, member.Admin, member.Approver, member.Auditor}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := list(map[id.Member]member.Role{"mem_0": member.Owner})
		for seq := range uint64(60) {
			pick := func() id.Member { return id.Member(fmt.Sprint("mem_", random.IntN(6))) }
			by := roster.By{Member: pick(), Role: roles[random.IntN(4)]}
			m, role := pick(), roles[random.IntN(4)]
			before, was := r.Roles[by.Member], r.Roles[m]
			var ev schemas.Event
			switch random.IntN(3) {
			case 0:
				ev, _ = r.Add(by, m, role)
			case 1:
				ev, _ = r.SetRole(by, m, role)
			default:
				ev, _ = r.Remove(by, m, "", nil)
			}
			if ev == nil {
				continue
			}
			gone := r.Gone[m]
			r.Apply(seq+2, ev)
			if now := r.Roles[by.Member]; now.AtLeast(before) && now != before {
				t.Fatalf("seed %d: %s made themselves %s", seed, by.Member, now)
			}
			if gone && r.Roles[m] != "" {
				t.Fatalf("seed %d: %s is back", seed, m)
			}
			if acting := member.Narrower(by.Role, before); (was == member.Owner || r.Roles[m] == member.Owner) && acting != member.Owner {
				t.Fatalf("seed %d: a %s changed an owner", seed, acting)
			}
			if !slices.ContainsFunc(slices.Collect(values(r)), func(role member.Role) bool { return role == member.Owner }) {
				t.Fatalf("seed %d: no owner is left", seed)
			}
		}
	}
}

func values(r *roster.Roster) func(func(member.Role) bool) {
	return func(yield func(member.Role) bool) {
		for _, role := range r.Roles {
			if !yield(role) {
				return
			}
		}
	}
}

// Two owners remove each other at the same moment: one wins, and the other was none any more.
func TestOwnersRemoveEachOther(t *testing.T) {
	k := servicekit.Start(t)
	for round := range 8 {
		tenant := id.Tenant(fmt.Sprint("tnt_", round))
		owners := []id.Member{"mem_a", "mem_b"}
		for _, m := range owners {
			k.Say(schemas.Gateway, draft(tenant, m, member.Owner))
		}
		errs := make([]error, 2)
		var wait sync.WaitGroup
		for i, m := range owners {
			wait.Go(func() {
				other := owners[1-i]
				_, errs[i] = roster.Change(t.Context(), k.As(schemas.Gateway), tenant, string(m), other, func(r *roster.Roster) (schemas.Event, error) {
					return r.Remove(roster.By{Member: m, Role: member.Owner}, other, "a quarrel", nil)
				})
			})
		}
		wait.Wait()
		codes := []problem.Code{problem.CodeOf(errs[0]), problem.CodeOf(errs[1])}
		slices.Sort(codes)
		if !slices.Equal(codes, []problem.Code{"", problem.Unauthenticated}) {
			t.Errorf("round %d: %v", round, errs)
		}
	}
	if n := len(k.Events(schemas.Control, "member.removed")); n != 8 {
		t.Errorf("%d removals", n)
	}
}

func draft(tenant id.Tenant, m id.Member, role member.Role) eventlog.Draft {
	return eventlog.Draft{Tenant: tenant, Key: string(m), Event: member.Added{Member: m, Role: role}}
}
