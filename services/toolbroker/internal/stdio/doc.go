// Package stdio runs MCP servers as programs beside the broker, for whoever operates it and allows that: the commands are
// in a file of theirs, and a connection names one of them and nothing else of it.
//
// A program has a process group of its own, an environment with nothing in it but what the file lists, and no more
// rights than the broker's user takes away: none. So what is listed should be trusted as the broker is. It ends with
// the broker, with its connection, and when it breaks; its whole group ends with it.
package stdio
