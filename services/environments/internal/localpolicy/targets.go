package localpolicy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/execwarden/execwarden/libs/egress"
)

// TargetsRule is the rule that refuses connections of commands.
const TargetsRule = "targets"

// TargetDenied is a refusal by rule targets.
func TargetDenied(format string, args ...any) error { return denied(TargetsRule, format, args...) }

// TargetRules are the ways out that commands have where the network is targets.
func (p *Policy) TargetRules() (out []egress.Rule) {
	if p.Network != Targets {
		return nil
	}
	for _, target := range p.Targets {
		t := PrivateHTTP{Target: target}
		if t.validate() == nil { // as it was when the policy was read
			out = append(out, t.Rule())
		}
	}
	return out
}

func (p *Policy) validateTargets() error {
	if len(p.Targets) > 64 {
		return errors.New("targets has at most 64 entries")
	}
	for _, target := range p.Targets {
		if strings.Contains(target, "/") {
			return fmt.Errorf("target %.200q is no host or host:port; what a tunnel carries has no path", target)
		}
		t := PrivateHTTP{Target: target}
		if err := t.validate(); err != nil {
			return fmt.Errorf("target %.200q %w", target, err)
		}
	}
	return nil
}
