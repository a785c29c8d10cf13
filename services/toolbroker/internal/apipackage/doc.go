// Package apipackage makes tools of an HTTP API that is described by an OpenAPI document, and calls them.
//
// Import reads the document (OpenAPI 3.0 or 3.1, or Swagger 2) together with a Manifest, in which a person says which
// operations become tools, at which address, with which credential, and how dangerous each one is. It gives a Package: only
// the chosen operations, in a compact form that needs neither the document nor the library that read it. A Provider makes
// the calls of a Package.
//
//	document + manifest --Import--> Package --New--> Provider
//	                                   \--Diff--> what a new version changes, for the person who takes it
//
// A document is somebody else's text and is treated so. References lead only to files of its own bundle. They are
// followed one at a time, by name, and only from operations that were chosen: what is never inlined cannot explode, what is
// cyclic stays a reference, and a fault elsewhere in the document is nobody's business. The document's library is used for
// its types and for the conversion of Swagger 2; its own resolving and validating of whole documents is not, since both
// take quadratic time on a long chain of references.
//
// Arguments come from a model. They go where the document says, escaped for that place, and nowhere else: never to
// another path, another header, or a file on this machine. The credential is added last.
package apipackage
