// Package container keeps the shims of attachments in containers of a Docker engine: one container an attachment, of an
// image of the machine's owner, with the shim as its first process. The container ends with the shim, and everything in
// it with both. Nothing is ever begun in it from outside.
package container
