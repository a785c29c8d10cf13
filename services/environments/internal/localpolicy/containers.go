package localpolicy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/docker/go-units"
)

// Containers are those that a call may begin on the machine's Docker engine, beside the attachment's own commands.
type Containers struct {
	Images []string `yaml:"images"` // as the engine knows them, exactly; empty: none
	Most   int      `yaml:"most"`   // at once, of one attachment
	Memory string   `yaml:"memory"` // of each, without swap
	CPUs   float64  `yaml:"cpus"`
	PIDs   int64    `yaml:"pids"`

	memory int64
}

func (c *Containers) validate() error {
	if len(c.Images) == 0 {
		return nil
	}
	var err error
	if c.memory, err = units.RAMInBytes(c.Memory); err != nil || c.memory < 16<<20 {
		return fmt.Errorf("containers.memory %.60q is no size of at least 16m", c.Memory)
	}
	switch {
	case len(c.Images) > 64:
		return fmt.Errorf("containers.images lists %d, over 64", len(c.Images))
	case c.Most < 1 || c.Most > 32:
		return fmt.Errorf("containers.most %d is outside 1 to 32", c.Most)
	case c.CPUs <= 0 || c.CPUs > 256:
		return fmt.Errorf("containers.cpus %v is outside (0, 256]", c.CPUs)
	case c.PIDs < 8 || c.PIDs > 65536:
		return fmt.Errorf("containers.pids %d is outside 8 to 65536", c.PIDs)
	}
	for _, image := range c.Images {
		if image == "" || len(image) > 300 || strings.ContainsAny(image, " \t\n*") {
			return errors.New("containers.images are names of images, such as postgres:17, without patterns")
		}
	}
	return nil
}

// Bytes is the memory that each may have.
func (c Containers) Bytes() int64 { return c.memory }

// MayContain says whether a container of an image may be begun.
func (p *Policy) MayContain(image string) error {
	if !slices.Contains(p.Containers.Images, image) {
		return denied("containers.images", "no container of image %.100q may be begun", image)
	}
	return nil
}

// MayContainMore says whether another may be begun beside as many.
func (p *Policy) MayContainMore(there int) error {
	if there >= p.Containers.Most {
		return denied("containers.most", "%d containers of this attachment are there", there)
	}
	return nil
}
