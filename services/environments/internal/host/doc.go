// Package host is what a connector has orders carried out with: attachments, each with a volume, a shim that keeps its
// commands, and the files of both. It holds every order against the machine's own policy, and carries one out once.
package host
