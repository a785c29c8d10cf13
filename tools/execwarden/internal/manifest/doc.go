// Package manifest keeps what a tenant has configured in files.
//
// A file holds YAML documents, each of one kind and name, with the fields of the event that defines such a thing.
// Files are read strictly: a field that nobody knows, a misspelt condition say, would otherwise be no condition.
// Nothing in a file is expanded. A secret is never in a file, only where it is found: another file, or an environment
// variable.
//
//	files -> Load -> Set -> Plan (against what the API has) -> Apply
//
// Nothing is sent before all of it is known to be valid, and nothing is removed: a thing without a file stays.
package manifest
