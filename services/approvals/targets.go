package approvals

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/mail"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/target"
	"github.com/execwarden/execwarden/services/approvals/internal/courier"
)

// Bounds of targets.
const (
	maxTargets = 20 // of a tenant
	maxURL     = 2 << 10
	maxMailbox = 254 // RFC 5321, section 4.5.3.1.3, less the brackets
	maxPrivate = 16
)

// defineTarget makes, changes or removes a target. The address is sealed before the definition is said, and forgotten
// before the removal is: a crash between leaves a target that another definition, or removal, sets right.
func (s *Service) defineTarget(ctx context.Context, who rpc.Caller, q ask.DefineTarget) (ask.DefinedTarget, error) {
	def := q.Target
	if !member.Role(who.Role).MayConfigure() {
		return ask.DefinedTarget{}, problem.New(problem.Denied, "a %s may not say who is told", who.Role)
	}
	if !valid[id.Target](def.Target) {
		return ask.DefinedTarget{}, problem.New(problem.Invalid, "%.80q is not a target's id", def.Target)
	}
	if err := s.view.Current(); err != nil {
		return ask.DefinedTarget{}, err
	}
	old, _ := s.targets.Get(who.Tenant, string(def.Target))
	if def.Removed {
		if old.Target == "" {
			return ask.DefinedTarget{}, problem.New(problem.NotFound, "there is no target %s", id.Name(def.Target))
		}
		if err := s.vault.Delete(ctx, who.Tenant, string(def.Target), 0); err != nil {
			return ask.DefinedTarget{}, err
		}
		old.Removed, old.Host, old.Fingerprint = true, "", ""
		return s.sayTarget(ctx, who, old, "")
	}
	if len(def.About) == 0 {
		def.About = target.Abouts()
	}
	if err := s.checkTarget(who.Tenant, def); err != nil {
		return ask.DefinedTarget{}, err
	}
	kept := sealed{}
	if old.Target != "" && !old.Removed && old.Type == def.Type {
		secret, err := s.vault.Get(ctx, who.Tenant, string(def.Target))
		if err == nil {
			err = json.Unmarshal([]byte(secret.Reveal()), &kept)
		}
		if err != nil && problem.CodeOf(err) != problem.NotFound {
			return ask.DefinedTarget{}, err
		}
	}
	if q.Address != "" {
		kept.Address = q.Address
	}
	var err error
	if def.Host, err = s.checkAddress(def, kept.Address); err != nil {
		return ask.DefinedTarget{}, err
	}
	if def.Type == target.Mail && kept.Salt == "" {
		kept.Salt = rand.Text()
	}
	made := ""
	switch {
	case def.Type != target.Webhook && q.Secret != "":
		return ask.DefinedTarget{}, problem.New(problem.Invalid, "only a webhook is signed")
	case def.Type != target.Webhook:
	case q.Secret != "":
		if err := courier.CheckSecret(q.Secret); err != nil {
			return ask.DefinedTarget{}, err
		}
		kept.Secret = q.Secret
	case kept.Secret == "":
		made = courier.NewSecret()
		kept.Secret = made
	}
	raw, err := json.Marshal(kept)
	if err != nil {
		return ask.DefinedTarget{}, problem.Wrap(err, problem.Internal, "the address cannot be kept")
	}
	if def.Fingerprint, err = s.vault.Put(ctx, who.Tenant, string(def.Target), vault.NewSecret(string(raw))); err != nil {
		return ask.DefinedTarget{}, err
	}
	return s.sayTarget(ctx, who, def, made)
}

func (s *Service) sayTarget(ctx context.Context, who rpc.Caller, def target.Defined, made string) (ask.DefinedTarget, error) {
	seq, err := s.deps.Log.Append(ctx, eventlog.Draft{Event: def, Tenant: who.Tenant, Key: string(def.Target), Actor: who.Actor})
	return ask.DefinedTarget{Seq: seq, Secret: made}, err
}

func (s *Service) checkTarget(tenant id.Tenant, def target.Defined) error {
	for i, about := range def.About {
		if !slices.Contains(target.Abouts(), about) || slices.Contains(def.About[:i], about) {
			return problem.New(problem.Invalid, "about %.40q is not requested, escalated, decided or expired, each once", about)
		}
	}
	if len(def.Private) > maxPrivate || def.Type == target.Mail && len(def.Private) > 0 {
		return problem.New(problem.Invalid, "private is for webhooks, and names at most %d addresses", maxPrivate)
	}
	for _, p := range def.Private {
		if _, err := netip.ParseAddrPort(p); err != nil {
			return problem.New(problem.Invalid, "private %.80q is not an address:port", p)
		}
	}
	others := 0
	for _, t := range s.targets.All(tenant) {
		if !t.Removed && t.Target != def.Target {
			others++
		}
	}
	if others >= maxTargets {
		return problem.New(problem.Invalid, "there are %d targets already; remove one", others)
	}
	return nil
}

// checkAddress says where an address leads, and what is wrong with it, without repeating it.
func (s *Service) checkAddress(def target.Defined, address string) (host string, err error) {
	switch def.Type {
	case target.Webhook, target.Slack:
		u, err := url.Parse(address)
		switch {
		case err != nil || len(address) > maxURL || u.Hostname() == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
			return "", problem.New(problem.Invalid, "the target's address is not an http(s) URL of at most %d bytes without a user", maxURL)
		case u.Scheme == "http" && len(def.Private) == 0:
			return "", problem.New(problem.Invalid, "use https: whoever is on the way would read the notices; http is for addresses that private names")
		}
		return u.Host, nil
	case target.Mail:
		if s.courier.Mail == nil {
			return "", problem.New(problem.Invalid, "this deployment sends no mail; its operator sets smtp_host")
		}
		a, err := mail.ParseAddress(address)
		if err != nil || a.Name != "" || a.Address != address || len(address) > maxMailbox || strings.ContainsAny(address, "\r\n") {
			return "", problem.New(problem.Invalid, "the target's address is not a mail address alone, such as oncall@example.com")
		}
		return "", nil
	}
	return "", problem.New(problem.Invalid, "target type %.40q is not webhook, slack or mail", def.Type)
}

// testTarget sends a notice that is about nothing, now, and says how that went.
func (s *Service) testTarget(ctx context.Context, who rpc.Caller, q ask.TestTarget) (ask.Done, error) {
	if !member.Role(who.Role).MayConfigure() {
		return ask.Done{}, problem.New(problem.Denied, "a %s may not have notices sent", who.Role)
	}
	t, ok := s.targets.Get(who.Tenant, string(q.Target))
	if !ok || t.Removed {
		return ask.Done{}, problem.New(problem.NotFound, "there is no target %.80q", q.Target)
	}
	t, to, err := s.address(ctx, who.Tenant, q.Target)
	if err != nil {
		return ask.Done{}, err
	}
	refusal, err := refused(ctx, s.courier.Carry(ctx, t.Type, to, courier.Notice{ID: id.New[id.Notice](), About: courier.Test, Tenant: who.Tenant}))
	switch {
	case err != nil:
		return ask.Done{}, err
	case refusal != nil:
		return ask.Done{}, problem.New(problem.Upstream, "%s did not take the notice: %s", id.Name(q.Target), refusal.Reason)
	}
	return ask.Done{}, nil
}

// keepsOf lists the tenants that there may be secrets of.
func (s *Service) keepsOf() ([]id.Tenant, error) {
	return append(s.targets.Tenants(), s.tenants.Tenants()...), s.view.Current()
}

// secretsOf names a tenant's secrets.
func (s *Service) secretsOf(of id.Tenant) (names []string) {
	for _, t := range s.targets.All(of) {
		if !t.Removed {
			names = append(names, string(t.Target))
		}
	}
	return names
}
