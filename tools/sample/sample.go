// Package sample is the world around the sample run, on loopback: a scripted model, GitHub, an internal API and a
// public page. Each part is a real server with the life of loopback.Server: Start(ctx), URL(), Close().
//
//	webhook      GitHub's own example payloads, signed and delivered as GitHub does
//	fakegithub   the part of GitHub's REST API that the run needs
//	internalapi  an MCP server: who owns a component, and a ticket tracker
//	publicpage   a status page
package sample

import (
	_ "embed"

	"github.com/execwarden/execwarden/tools/sample/loopback"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

//go:embed script.yaml
var script []byte

// Script is what the scripted model of the sample run plays. It panics when the file that was built in is broken.
func Script() scriptmodel.Script {
	s, err := scriptmodel.Load(script)
	if err != nil {
		panic(err)
	}
	return s
}

// NewModel returns the server of a scripted model, for both protocols; Start it.
func NewModel(s scriptmodel.Script) *loopback.Server {
	return &loopback.Server{Handler: scriptmodel.New(s)}
}
