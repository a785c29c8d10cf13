// Package cluster is what a deployment of separate services needs beside them: its secrets, and the one user that may
// make streams and durables.
package cluster
