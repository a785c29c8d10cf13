package apipackage

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"mime"
	"mime/multipart"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// maxFile is the largest file that an argument may hold, in bytes. Arguments as a whole have a limit of their own.
const maxFile = 8 << 20

// encode makes the body, and gives its media type. Both are empty when no argument asks for one.
func (b *Body) encode(args []member) ([]byte, string, error) {
	content, fields, given, err := b.collect(args)
	if err != nil {
		return nil, "", err
	}
	if !given {
		if b.Required && b.Kind == JSONBody { // none of its fields is required
			return []byte("{}"), b.MediaType, nil
		}
		return nil, "", nil
	}
	switch b.Kind {
	case JSONBody:
		return content.appendJSON(nil), b.MediaType, nil
	case FormBody:
		raw, err := formBody(content, fields)
		return raw, b.MediaType, err
	case MultipartBody:
		return multipartBody(content, fields)
	case TextBody:
		return []byte(content.word()), b.MediaType, nil
	}
	raw, err := decodeFile(b.Whole, content.word())
	return raw, b.MediaType, err
}

// collect puts the body's arguments together again, under the names that the API knows.
func (b *Body) collect(args []member) (content value, fields []Field, given bool, err error) {
	if b.Whole != "" {
		for _, a := range args {
			if a.name == b.Whole {
				return a.value, b.Form, true, nil
			}
		}
		return value{}, nil, false, nil
	}
	content.kind = object
	for _, a := range args {
		i := slices.IndexFunc(b.Fields, func(f Field) bool { return f.Arg == a.name })
		if i < 0 {
			continue
		}
		content.members = append(content.members, member{b.Fields[i].Name, a.value})
	}
	if len(content.members) == 0 {
		return content, b.Fields, false, nil
	}
	for _, f := range b.Fields { // an optional body still has its required fields
		if f.Required && !slices.ContainsFunc(args, func(a member) bool { return a.name == f.Arg }) {
			return content, nil, false, problem.New(problem.Invalid, "argument %s is missing: the others of the body need it", f.Arg)
		}
	}
	return content, b.Fields, true, nil
}

func fieldOf(fields []Field, name string) Field {
	if i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name }); i >= 0 {
		return fields[i]
	}
	return Field{Name: name}
}

// formBody writes application/x-www-form-urlencoded. Without a style of its own a field is written once for each item of
// an array, and an object as a JSON text.
func formBody(content value, fields []Field) ([]byte, error) {
	if content.kind != object {
		return nil, problem.New(problem.Invalid, "the body has to be an object, since it is sent as a form")
	}
	var b strings.Builder
	for _, m := range content.members {
		f := fieldOf(fields, m.name)
		var list []pair
		var err error
		if f.Style != "" {
			list, err = pairs(m.name, f.Style, f.Explode, m.value, url.QueryEscape)
		} else {
			items := []value{m.value}
			if m.kind == array {
				items = m.items
			}
			for _, item := range items {
				list = append(list, pair{name: m.name, value: item.formWord()})
			}
		}
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			if !p.joined {
				p.value = url.QueryEscape(p.value)
			}
			if b.Len() > 0 {
				b.WriteByte('&')
			}
			b.WriteString(url.QueryEscape(p.name) + "=" + p.value)
		}
	}
	return []byte(b.String()), nil
}

func (v value) formWord() string {
	if v.single() {
		return v.word()
	}
	return string(v.appendJSON(nil))
}

// multipartBody writes multipart/form-data. Its boundary follows from the content, so that a call that is tried again is
// the same to the byte.
func multipartBody(content value, fields []Field) ([]byte, string, error) {
	if content.kind != object {
		return nil, "", problem.New(problem.Invalid, "the body has to be an object, since it is sent as a form")
	}
	sum := sha256.Sum256(content.appendJSON(nil))
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	if err := w.SetBoundary("execwarden-" + hex.EncodeToString(sum[:16])); err != nil {
		return nil, "", problem.Wrap(err, problem.Internal, "the form cannot be written")
	}
	for _, m := range content.members {
		f := fieldOf(fields, m.name)
		items := []value{m.value}
		if m.kind == array && (f.File || !jsonPart(f)) {
			items = m.items
		}
		for _, item := range items {
			header, body, err := part(f, item)
			if err != nil {
				return nil, "", err
			}
			p, err := w.CreatePart(header)
			if err == nil {
				_, err = p.Write(body)
			}
			if err != nil {
				return nil, "", problem.Wrap(err, problem.Internal, "the form cannot be written")
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, "", problem.Wrap(err, problem.Internal, "the form cannot be written")
	}
	return out.Bytes(), w.FormDataContentType(), nil
}

func jsonPart(f Field) bool { return f.Type != "" && kindOf(f.Type) == JSONBody }

// part makes one part of a multipart form.
func part(f Field, v value) (textproto.MIMEHeader, []byte, error) {
	name := map[string]string{"name": f.Name}
	header := textproto.MIMEHeader{}
	var body []byte
	switch {
	case f.File:
		if v.kind != object {
			return nil, nil, problem.New(problem.Invalid, "argument %s has to be a file's content: {\"base64\": …}", f.Arg)
		}
		name["filename"] = "file"
		media := "application/octet-stream"
		if base, _, err := mime.ParseMediaType(f.Type); err == nil && !strings.Contains(base, "*") {
			media = base
		}
		for _, m := range v.members {
			switch m.name {
			case "base64":
				raw, err := decodeFile(f.Arg, m.word())
				if err != nil {
					return nil, nil, err
				}
				body = raw
			case "filename":
				name["filename"] = m.word()
			case "media_type":
				media = m.word()
			}
		}
		if _, _, err := mime.ParseMediaType(media); err != nil {
			return nil, nil, problem.New(problem.Invalid, "argument %s: %.60q is not a media type", f.Arg, media)
		}
		header.Set("Content-Type", media)
	case !v.single() || jsonPart(f):
		header.Set("Content-Type", "application/json")
		body = v.appendJSON(nil)
	default:
		body = []byte(v.word())
	}
	var disposition strings.Builder
	disposition.WriteString("form-data")
	for _, key := range []string{"name", "filename"} {
		if text, ok := name[key]; ok {
			if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.ContainsAny(text, "/\\") && key == "filename" {
				return nil, nil, problem.New(problem.Invalid, "argument %s: %.60q is not a file name", f.Arg, text)
			}
			fmt.Fprintf(&disposition, `; %s="%s"`, key, strings.NewReplacer(`\`, `\\`, `"`, `%22`).Replace(text))
		}
	}
	header.Set("Content-Disposition", disposition.String())
	return header, body, nil
}

// decodeFile reads a file's content from an argument.
func decodeFile(arg, text string) ([]byte, error) {
	if base64.StdEncoding.DecodedLen(len(text)) > maxFile+3 {
		return nil, problem.New(problem.TooLarge, "argument %s: a file may have %d MiB", arg, maxFile>>20)
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "argument %s has to be the content itself, in base64", arg)
	}
	return raw, nil
}
