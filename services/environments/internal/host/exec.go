package host

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// Times of commands.
const (
	defaultTimeout = 2 * time.Minute
	maxTimeout     = time.Hour
)

// exec begins a command, or finds it, and answers when it has ended; one in the background, when it runs.
func (h *Host) exec(ctx context.Context, p *place, o connector.Order) connector.Answer {
	name := string(o.Call)
	if o.Only {
		if _, err := p.shim.Get(ctx, name, 0); problem.CodeOf(err) == problem.NotFound {
			return connector.Answer{State: connector.NotBegun}
		}
	}
	a, err := machine.Args[machine.ExecArgs](o.Args)
	if err != nil {
		return toolError(problem.New(problem.Invalid, "%v", err))
	}
	if !o.Only {
		spec, err := h.spec(p, o, a)
		if err != nil {
			return toolError(err)
		}
		if makesRoom(spec.Argv) {
			defer h.forget(p)
		} else if err := h.mayGrow(ctx, p); err != nil {
			return toolError(err)
		}
		leave, err := h.pass(p.lease.Volume)
		if err != nil {
			return toolError(err)
		}
		h.beginning.Lock()
		if err = calledOff(p, o.Call); err == nil {
			_, err = p.shim.Begin(ctx, spec)
		}
		h.beginning.Unlock()
		leave()
		if err != nil {
			return toolError(err)
		}
		h.follow(p, name)
	}
	wait := o.Patience
	if a.Background {
		wait = 0
	}
	e, err := p.shim.Get(ctx, name, wait)
	switch {
	case err != nil:
		return connector.Answer{State: connector.UnderWay} // it was begun: the shim is asked again
	case e.Running() && !a.Background:
		return connector.Answer{State: connector.UnderWay}
	case e.Reason == shim.Denied:
		return failed(connector.Refused, problem.New(problem.Denied, "%s", e.Message))
	case e.Reason == shim.NotBegun:
		return toolError(problem.New(problem.Invalid, "the command could not be started: %s", e.Message))
	case e.Reason == shim.Lost:
		return failed(connector.Unknown, problem.New(problem.Unknown, "unknown_outcome: %s", e.Message))
	}
	out := execOf(e)
	if err := h.addOutput(ctx, p, &out); err != nil {
		return connector.Answer{State: connector.UnderWay}
	}
	return done(out, e.Reason != shim.Exited && !e.Running() || e.Code != 0)
}

// spec holds a command against the policy, and makes it whole.
func (h *Host) spec(p *place, o connector.Order, a machine.ExecArgs) (shim.Spec, error) {
	s := shim.Spec{ID: string(o.Call), Digest: digestOf(o), Argv: a.Argv, Stdin: []byte(a.Stdin), KeepIn: a.Background && a.Stdin == "", Timeout: time.Duration(a.Timeout) * time.Second}
	switch {
	case (len(a.Argv) > 0) == (a.Command != ""):
		return s, problem.New(problem.Invalid, "give argv or command, and not both")
	case s.Timeout < 0 || s.Timeout > maxTimeout:
		return s, problem.New(problem.Invalid, "timeout_s is outside 1 to %d", int(maxTimeout.Seconds()))
	case s.Timeout == 0 && !a.Background:
		s.Timeout = defaultTimeout
	case s.Timeout == 0:
		s.Timeout = maxTimeout
	}
	if a.Command != "" {
		if err := h.cfg.Policy.MayShell(); err != nil {
			return s, err
		}
		s.Argv = []string{"/bin/sh", "-c", a.Command}
	}
	env := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"}
	for _, one := range h.driver.env() {
		if name, value, ok := strings.Cut(one, "="); ok && validName(name) {
			env[name] = value
		}
	}
	env["HOME"], env["TMPDIR"] = p.volume, filepath.Join(p.volume, ".tmp")
	proxy, err := h.proxyEnv(p)
	if err != nil {
		return s, err
	}
	maps.Copy(env, proxy)
	for name, value := range a.Env {
		if !validName(name) {
			return s, problem.New(problem.Invalid, "%.60q is no name of a variable", name)
		}
		if err := h.cfg.Policy.MaySet(name); err != nil {
			return s, err
		}
		env[name] = value
	}
	for name, value := range env {
		s.Env = append(s.Env, name+"="+value)
	}
	slices.Sort(s.Env)
	cwd, err := p.files.Dir(a.Cwd)
	if err != nil {
		return s, err
	}
	s.Cwd = cwd
	return s, nil
}

func validName(name string) bool {
	for i, r := range name {
		if (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_' && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != "" && len(name) <= 256
}
