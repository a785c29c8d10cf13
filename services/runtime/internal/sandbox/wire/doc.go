// Package wire is the language between the pool and a worker process: length-prefixed frames over one socket pair.
//
// The parent says Run and then Reply for each request. The worker says Hello once it is jailed, then for each Run any
// number of Call, Fetch and Log, and last either Done or Fail. After that it may say Ready, once, and be silent until
// the next Run; or the parent ends the process. There is nothing else.
//
// A worker that ran a script is not to be trusted: the reader caps what it takes by kind before it allocates, and
// decodes strictly.
package wire
