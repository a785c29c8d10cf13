package engine

import (
	"github.com/dop251/goja"
	"golang.org/x/text/collate"
	"golang.org/x/text/language"
)

// hostCompare(a, b, locale, numeric, sensitivity) orders text as the language does, or gives undefined for a locale
// that is none.
func (m *machine) hostCompare(c goja.FunctionCall) goja.Value {
	tag, err := language.Parse(c.Argument(2).String())
	if err != nil {
		return goja.Undefined()
	}
	var options []collate.Option
	if c.Argument(3).ToBoolean() {
		options = append(options, collate.Numeric)
	}
	switch c.Argument(4).String() {
	case "base":
		options = append(options, collate.IgnoreCase, collate.IgnoreDiacritics)
	case "accent":
		options = append(options, collate.IgnoreCase)
	case "case":
		options = append(options, collate.IgnoreDiacritics)
	}
	return m.vm.ToValue(collate.New(tag, options...).CompareString(c.Argument(0).String(), c.Argument(1).String()))
}
