package apipackage

import (
	"encoding/json"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"

	"github.com/execwarden/execwarden/libs/problem"
)

// fromSwagger writes a Swagger 2 document as an OpenAPI 3 one, part by part: converting it whole would also resolve it.
func fromSwagger(doc *document) (*document, error) {
	var old openapi2.T
	if err := json.Unmarshal(doc.raw, &old); err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the Swagger document cannot be read: %.200s", err)
	}
	parts := &openapi3.Components{
		Schemas:         openapi2conv.ToV3Schemas(old.Definitions),
		Parameters:      openapi3.ParametersMap{},
		RequestBodies:   openapi3.RequestBodies{},
		SecuritySchemes: openapi3.SecuritySchemes{},
	}
	fault := func(what string, err error) error {
		return problem.Wrap(err, problem.Invalid, "%s of the Swagger document cannot be converted: %.200s", what, err)
	}
	for name, p := range old.Parameters {
		parameter, body, form, err := openapi2conv.ToV3Parameter(parts, p, old.Consumes)
		switch {
		case err != nil:
			return nil, fault("parameter "+name, err)
		case body != nil:
			parts.RequestBodies[name] = body
		case form != nil:
			for _, s := range form {
				parts.Schemas[name] = s // where the conversion of operations looks for a shared form field
			}
		default:
			parts.Parameters[name] = parameter
		}
	}
	for name, s := range old.SecurityDefinitions {
		scheme, err := openapi2conv.ToV3SecurityScheme(s)
		if err != nil {
			return nil, fault("security definition "+name, err)
		}
		parts.SecuritySchemes[name] = scheme
	}
	paths := openapi3.NewPathsWithCapacity(len(old.Paths))
	for at, item := range old.Paths {
		converted, err := openapi2conv.ToV3PathItem(&old, parts, item, old.Consumes)
		if err != nil {
			return nil, fault("path "+at, err)
		}
		if converted != nil {
			paths.Set(at, converted)
		}
	}
	raw, err := json.Marshal(openapi3.T{OpenAPI: "3.0.3", Info: &old.Info, Components: parts, Paths: paths})
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the Swagger document cannot be converted")
	}
	return parse(doc.name, raw)
}
