package apipackage

// What a document may cost. The largest public ones are 13 MiB with 150,000 nodes, 26 deep.
const (
	maxDocument   = 32 << 20 // bytes of all files together, and of one that was YAML when written as JSON
	maxYAML       = 8 << 20  // bytes of one YAML file: its syntax tree is forty times as large
	maxFiles      = 500
	maxNodes      = 2_000_000 // values in one file, with YAML aliases counted as often as they are used
	maxDepth      = 100       // how deep values nest
	maxCompiled   = 300_000   // schema nodes of a package
	maxOperations = 5_000
	maxWarnings   = 1_000
	maxRefs       = 32 // references that lead to nothing but another reference
)

// What a model is shown of one tool.
const (
	maxToolSchema      = 32 << 10 // bytes, if it can be cut to that
	mostToolSchema     = 64 << 10 // bytes, over which it is no tool
	maxToolDescription = 1024     // characters
	maxArgDescription  = 300
)
