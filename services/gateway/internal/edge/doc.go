// Package edge is what every request passes before a face of the gateway sees it: which host it was sent to, which
// page sent it, how large it is, and how it is measured and traced.
package edge
