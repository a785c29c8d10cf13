// Package wire is the language between the pool and a worker process: length-prefixed frames over one socket pair.
//
// The parent says Run once and then Reply for each request. The worker says Hello once it is jailed, then any
// number of Call, Fetch and Log, and last either Done or Fail. There is nothing else, and after the last word the
// parent ends the process.
//
// A worker that ran a script is not to be trusted: the reader caps what it takes by kind before it allocates, and
// decodes strictly.
package wire
