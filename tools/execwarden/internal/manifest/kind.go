package manifest

import "strings"

// Kind is the kind of a document.
type Kind string

// The kinds.
const (
	Environment Kind = "Environment"
	Connection  Kind = "Connection"
	Agent       Kind = "Agent"
	Hook        Kind = "Hook"
	Grant       Kind = "Grant"
	Trigger     Kind = "Trigger"
)

// build reads a document's fields into the thing that it asks for.
var build = map[Kind]func(*document) Resource{
	Environment: buildEnvironment,
	Connection:  buildConnection,
	Agent:       buildAgent,
	Hook:        buildHook,
	Grant:       buildGrant,
	Trigger:     buildTrigger,
}

// Kinds lists the kinds in the order in which things are applied: what is referred to before what refers to it.
func Kinds() []Kind { return []Kind{Environment, Connection, Agent, Hook, Grant, Trigger} }

func kindNames() string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}
