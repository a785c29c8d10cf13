// Package render writes what commands found: data to standard output in the format that was asked for, and what is
// said about it to standard error.
//
// What is shown was written by models, by tools and by strangers on the internet, and a terminal obeys what it is
// sent. So nothing reaches either stream that is not spelt out first (see Visible): in text as \u{1B}, in JSON and
// YAML by their own escapes, which mean the same text.
package render
