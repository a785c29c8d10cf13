package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/dop251/goja"

	"github.com/execwarden/execwarden/services/runtime/internal/engine/page"
)

// hostText(buffer, offset, length, contentType)
func (m *machine) hostText(c goja.FunctionCall) goja.Value {
	return m.read(page.Text(window(c), c.Argument(3).String()))
}

// hostMarkdown(buffer, offset, length, contentType, base)
func (m *machine) hostMarkdown(c goja.FunctionCall) goja.Value {
	return m.read(page.Markdown(window(c), c.Argument(3).String(), c.Argument(4).String()))
}

// hostPlain(buffer, offset, length, contentType)
func (m *machine) hostPlain(c goja.FunctionCall) goja.Value {
	return m.read(page.Plain(window(c), c.Argument(3).String()))
}

func (m *machine) read(text string, err error) goja.Value {
	if err != nil {
		panic(m.vm.NewTypeError("%s", err.Error()))
	}
	return m.vm.ToValue(text)
}

// hostNotJSON(buffer, offset, length) says where a text stops being JSON, and "" of one that is JSON.
func (m *machine) hostNotJSON(c goja.FunctionCall) goja.Value {
	return m.vm.ToValue(notJSON(window(c)))
}

func notJSON(body []byte) string {
	var v json.RawMessage
	err := json.Unmarshal(body, &v)
	if err == nil {
		return ""
	}
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return "it cannot be read"
	}
	at := int(syntax.Offset)
	if len(body) == 0 {
		return "it is empty"
	}
	if at >= len(body) && errors.Is(truncated(body), io.ErrUnexpectedEOF) {
		return fmt.Sprintf("it ends too early, at byte %d", len(body))
	}
	at = max(min(at, len(body)), 1)
	line, col := 1, 1
	for _, b := range body[:at-1] {
		if col++; b == '\n' {
			line, col = line+1, 1
		}
	}
	return fmt.Sprintf("line %d, column %d: %s", line, col, cut(syntax.Error(), 200))
}

// truncated tells JSON that ends too early from JSON that is wrong.
func truncated(body []byte) error {
	var v json.RawMessage
	return json.NewDecoder(bytes.NewReader(body)).Decode(&v)
}
