// Package page turns what a fetch brought into text that a model reads: bytes of any charset into a string, HTML into
// Markdown or plain text.
//
// It runs in the worker, which is jailed and dies with its script, and not beside the bus and the secrets of the
// service: HTML is the input that parsers have most often broken on. Its time and memory grow with the page alone. The
// parser refuses elements that are nested more than 512 deep, what is written in front of a line is bounded, and so are
// the page and the text that comes of it. (A library that was tried took a minute for 100 KB of nested quotes.)
package page
