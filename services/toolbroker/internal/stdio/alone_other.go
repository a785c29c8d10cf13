//go:build !linux

package stdio

import (
	"os/exec"

	"github.com/execwarden/execwarden/libs/problem"
)

func alone(*exec.Cmd) error {
	return problem.New(problem.Invalid, "programs beside the broker need Linux")
}

func settled(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // it did not start
