package scriptmodel

import (
	"fmt"
	"regexp"
	"strings"
	"text/template"

	"github.com/goccy/go-yaml"
)

// Script is what the server plays.
type Script struct {
	Model string `yaml:"model"` // begins with "scripted-"
	Turns []Turn `yaml:"turns"`
}

// Turn is one answer. Texts in it are templates over View.
type Turn struct {
	Text  string `yaml:"text"`
	Calls []Call `yaml:"calls"`
	Fault *Fault `yaml:"fault"`
}

// Call is one tool call. Its arguments are given by name: Args render to strings, Values to any other JSON.
type Call struct {
	Tool   string            `yaml:"tool"`
	Args   map[string]string `yaml:"args"`
	Values map[string]string `yaml:"values"`
}

// Fault goes wrong in the place of an answer, or in the middle of it.
type Fault struct {
	Status     int    `yaml:"status"`     // answers with this HTTP status instead
	RetryAfter string `yaml:"retryAfter"` // the header, as it is to be sent
	CutAfter   int    `yaml:"cutAfter"`   // ends the stream after so many events
	Abort      bool   `yaml:"abort"`      // breaks the connection at the cut, instead of a clean end
	Times      int    `yaml:"times"`      // goes wrong so often in one conversation, then answers; 0: always
}

// Load reads a script in YAML (or JSON, which is YAML) and checks it.
func Load(raw []byte) (Script, error) {
	var s Script
	if err := yaml.UnmarshalWithOptions(raw, &s, yaml.Strict()); err != nil {
		return Script{}, fmt.Errorf("script: %w", err)
	}
	return s, s.check()
}

var (
	modelID  = regexp.MustCompile(`^scripted-[a-z0-9.-]+$`)
	toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
)

func (s Script) check() error {
	if !modelID.MatchString(s.Model) {
		return fmt.Errorf("script: model %q does not begin with scripted-, and it is no real one", s.Model)
	}
	if len(s.Turns) == 0 {
		return fmt.Errorf("script: no turns")
	}
	for i, turn := range s.Turns {
		if err := turn.check(); err != nil {
			return fmt.Errorf("script: turn %d: %w", i+1, err)
		}
	}
	return nil
}

func (t Turn) check() error {
	texts := []string{t.Text}
	for _, c := range t.Calls {
		if !toolName.MatchString(c.Tool) {
			return fmt.Errorf("tool name %q does not match %s", c.Tool, toolName)
		}
		for name, text := range c.Args {
			if _, both := c.Values[name]; both {
				return fmt.Errorf("tool %s: %s is both in args and in values", c.Tool, name)
			}
			texts = append(texts, text)
		}
		for _, text := range c.Values {
			texts = append(texts, text)
		}
	}
	if f := t.Fault; f != nil && f.CutAfter <= 0 && f.Status < 400 {
		return fmt.Errorf("a fault needs a status of 400 or more, or a cut")
	}
	for _, text := range texts {
		if _, err := parse(text); err != nil {
			return err
		}
	}
	return nil
}

func parse(text string) (*template.Template, error) {
	return template.New("script").Option("missingkey=error").Funcs(functions).Parse(text)
}

func render(text string, v View) (string, error) {
	t, err := parse(text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = t.Execute(&out, v)
	return out.String(), err
}
