package boot

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/execwarden/execwarden/libs/problem"
)

// envPrefix starts the name of every environment variable that is read.
const envPrefix = "EXECWARDEN_"

// maxConfigFile bounds a configuration file, in bytes.
const maxConfigFile = 1 << 20

// Load fills the struct that cfg points to. A field's tag `name:"bus_url"` names it: flag --bus-url, environment
// EXECWARDEN_BUS_URL, key bus_url in the YAML file that --config names. Flags win over the environment, that over the
// file, that over the tag `default`. The tag `help` explains it. Embedded structs are part of the whole. Keys and
// flags that nobody knows are refused.
func Load(program string, args []string, env func(string) string, cfg any, out io.Writer) error {
	if err := Defaults(cfg); err != nil {
		return err
	}
	fields := fieldsOf(reflect.ValueOf(cfg).Elem())
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	flags.SetOutput(out)
	file := flags.String("config", env(envPrefix+"CONFIG"), "YAML file with the settings below, named with '_' for '-'")
	given := map[string]string{}
	for _, f := range fields {
		flags.Func(strings.ReplaceAll(f.name, "_", "-"), f.help+f.describe(), func(text string) error {
			given[f.name] = text
			return nil
		})
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return problem.Wrap(err, problem.Invalid, "%v; %s --help lists the flags", err, program)
	}
	if flags.NArg() > 0 {
		return problem.New(problem.Invalid, "%q is not a flag; %s --help lists them", flags.Arg(0), program)
	}
	inFile, err := readFile(*file, fields)
	if err != nil {
		return err
	}
	for _, f := range fields {
		for _, source := range []struct{ where, text string }{
			{"--" + strings.ReplaceAll(f.name, "_", "-"), given[f.name]},
			{envPrefix + strings.ToUpper(f.name), env(envPrefix + strings.ToUpper(f.name))},
			{*file + ": " + f.name, inFile[f.name]},
		} {
			if source.text == "" {
				continue
			}
			if err := f.set(source.text); err != nil {
				return problem.New(problem.Invalid, "%s: %v", source.where, err)
			}
			break
		}
	}
	return nil
}

// Defaults fills the struct that cfg points to with its fields' documented defaults.
func Defaults(cfg any) error {
	for _, f := range fieldsOf(reflect.ValueOf(cfg).Elem()) {
		if f.standard != "" {
			if err := f.set(f.standard); err != nil {
				return fmt.Errorf("boot: default of %s: %w", f.name, err)
			}
		}
	}
	return nil
}

func readFile(path string, fields []field) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "configuration file %s cannot be read", path)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err != nil || len(raw) > maxConfigFile {
		return nil, problem.New(problem.Invalid, "configuration file %s cannot be read, or is over 1 MiB", path)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(raw, &values); err != nil {
		return nil, problem.New(problem.Invalid, "configuration file %s: %v", path, err)
	}
	known := map[string]bool{}
	for _, f := range fields {
		known[f.name] = true
	}
	out := map[string]string{}
	for k, v := range values {
		if !known[k] {
			return nil, problem.New(problem.Invalid, "configuration file %s: nobody knows the key %q", path, k)
		}
		switch v.(type) {
		case string, bool, int, int64, uint64, float64:
			out[k] = fmt.Sprint(v)
		default:
			return nil, problem.New(problem.Invalid, "configuration file %s: %s is not a single value", path, k)
		}
	}
	return out, nil
}

type field struct {
	name, standard, help string
	value                reflect.Value
}

func fieldsOf(v reflect.Value) []field {
	var out []field
	for i := range v.NumField() {
		t := v.Type().Field(i)
		if t.Anonymous {
			out = append(out, fieldsOf(v.Field(i))...)
			continue
		}
		if name := t.Tag.Get("name"); name != "" {
			out = append(out, field{name, t.Tag.Get("default"), t.Tag.Get("help"), v.Field(i)})
		}
	}
	return out
}

func (f field) describe() string {
	if f.standard == "" {
		return ""
	}
	return " (default " + f.standard + ")"
}

func (f field) set(text string) error {
	switch p := f.value.Addr().Interface().(type) {
	case *string:
		*p = text
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is not true or false", text)
		}
		*p = b
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		*p = n
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 30s", text)
		}
		*p = d
	default:
		return fmt.Errorf("boot: a field of type %s cannot be configured", f.value.Type())
	}
	return nil
}
