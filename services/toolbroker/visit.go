package toolbroker

import (
	"context"
	"encoding/json"
	"regexp"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/visit"
	"github.com/execwarden/execwarden/schemas/volume"
)

// maxVisitArgv bounds a person's command line, in bytes: it stands in the record.
const maxVisitArgv = 16 << 10

var termName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+.-]{0,63}$`)

// admitVisit decides whether a member may come onto a machine, records it, and signs a permit. Who may attach a machine to an
// agent may do themselves what that agent could.
func (s *Service) admitVisit(ctx context.Context, who rpc.Caller, q ask.AdmitVisit) (ask.AdmittedVisit, error) {
	if !member.Role(who.Role).MayConfigure() {
		return ask.AdmittedVisit{}, problem.New(problem.Denied, "a %s may not come onto machines", who.Role)
	}
	if err := s.view.Current(); err != nil {
		return ask.AdmittedVisit{}, err
	}
	size := 0
	for _, word := range q.Argv {
		size += len(word) + 1
	}
	switch {
	case !q.Way.Valid():
		return ask.AdmittedVisit{}, problem.New(problem.Invalid, "way %.40q is not %s or %s", q.Way, visit.Shell, visit.Preview)
	case q.Way == visit.Preview && (q.Port < 1 || q.Port > 65535 || len(q.Argv) > 0 || q.Terminal):
		return ask.AdmittedVisit{}, problem.New(problem.Invalid, "a preview is of a port, 1 to 65535, and of nothing else")
	case q.Way == visit.Shell && q.Port != 0:
		return ask.AdmittedVisit{}, problem.New(problem.Invalid, "a shell has no port")
	case size > maxVisitArgv:
		return ask.AdmittedVisit{}, problem.New(problem.TooLarge, "a command line has at most %d bytes; write it to a file", maxVisitArgv)
	case q.Term != "" && !termName.MatchString(q.Term):
		return ask.AdmittedVisit{}, problem.New(problem.Invalid, "term %.60q is no name of a terminal", q.Term)
	}
	v, err := s.visited(who.Tenant, q)
	if err != nil {
		return ask.AdmittedVisit{}, err
	}
	spec := connector.Visit{Actor: who.Actor, Term: q.Term, Admitted: visit.Admitted{
		Visit: id.New[id.Visit](), Way: q.Way, Environment: v.Environment, Volume: v.Name, Attachment: v.Attached.Attachment, Epoch: v.Epoch, Argv: q.Argv, Terminal: q.Terminal, Port: q.Port,
	}}
	raw, err := json.Marshal(spec)
	if err != nil {
		return ask.AdmittedVisit{}, problem.Wrap(err, problem.Invalid, "the visit cannot be written")
	}
	seq, err := s.deps.Log.AppendAfter(ctx, eventlog.Draft{Event: spec.Admitted, Tenant: who.Tenant, Key: string(spec.Visit), Actor: who.Actor}, 0)
	if err != nil {
		return ask.AdmittedVisit{}, err
	}
	// A crash here leaves an admission that nobody has the permit of.
	now := s.now().UTC()
	text, err := s.signer.Sign(permit.Claims{
		Audience: connector.VisitAudience, Tenant: who.Tenant, ArgsDigest: permit.Digest(raw), Requested: seq, Attachment: spec.Attachment, Epoch: spec.Epoch,
		IssuedAt: now, ExpiresAt: now.Add(s.cfg.PermitLife),
	})
	return ask.AdmittedVisit{Visit: spec.Visit, Spec: raw, Permit: text}, err
}

// visited finds what a person comes onto. It has to be attached: a lease is what ends a visit.
func (s *Service) visited(tenant id.Tenant, q ask.AdmitVisit) (volume.Defined, error) {
	name := q.Volume
	if name == "" && q.Session == "" {
		name = "main"
	}
	for _, v := range s.volumes.All(tenant) {
		if v.Environment == q.Environment && v.Attached != nil && !v.Removed && (name == "" || v.Name == name) && (q.Session == "" || v.Attached.Holder.Session == q.Session) {
			return v, nil
		}
	}
	return volume.Defined{}, problem.New(problem.NotFound, "nothing of environment %s that fits is attached; execwarden env volumes shows what is, execwarden env attach attaches", id.Name(q.Environment))
}
