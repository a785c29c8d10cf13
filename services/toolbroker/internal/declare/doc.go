// Package declare writes tools as TypeScript: what a script may call by tools.<connection>.<tool>(args), and with which
// arguments. A declaration says the same as the tool's JSON Schema in a fraction of the bytes.
//
//	tool --New--> Tool, kept as long as the listing --Write--> one text within a budget
//
// Names, descriptions and schemas are somebody else's text. What is not understood becomes unknown, which is wider and
// never wrong; a schema too large is shown less deep. Whatever they hold, the text is valid TypeScript, and nothing of
// them leaves the comment or the quotes that it stands in.
package declare
