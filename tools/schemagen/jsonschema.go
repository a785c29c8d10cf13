package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/execwarden/execwarden/schemas"
)

const schemaDir = "schemas/json"

// jsonSchemas writes the JSON Schema (2020-12) of each event's data. Fields that it does not name are allowed: readers
// tolerate what is newer than they are.
func jsonSchemas(files map[string][]byte) error {
	for _, e := range schemas.All() {
		s, err := dataSchema(e)
		if err != nil {
			return err
		}
		raw, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			return err
		}
		files[schemaDir+"/"+schemas.TypeOf(e)+".json"] = append(raw, '\n')
	}
	return nil
}

func dataSchema(e schemas.Entry) (*jsonschema.Schema, error) {
	s, err := jsonschema.ForType(e.Type, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[[]byte]():          {Type: "string", ContentEncoding: "base64"},
	}})
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", e.Kind, err)
	}
	open(s)
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.ID = "https://execwarden.dev/schemas/" + schemas.TypeOf(e) + ".json"
	s.Title = schemas.TypeOf(e)
	return s, nil
}

// open lets objects have fields that this version does not know.
func open(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
		s.AdditionalProperties = nil
	}
	for _, p := range s.Properties {
		open(p)
	}
	open(s.Items)
	open(s.AdditionalProperties)
}
