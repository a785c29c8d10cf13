// Package model asks a language model for one answer. It speaks two protocols by base URL, OpenAI Chat Completions
// and Anthropic Messages, always streaming, and hides both behind neutral messages.
//
// Three promises make an answer safe to append to a run:
//
//   - An answer exists only after the provider's terminal marker. A stream that ends without it, however cleanly, is
//     a failure, because half a tool call is still valid text.
//   - Every tool call has a well-formed name, an id of its own, and arguments that are one JSON object in which no
//     name occurs twice. So an approver, a digest and an executor can only read the same thing.
//   - Everything the provider sends is bounded: lines, the stream, text, arguments, the number of calls, silence.
//
// The package never retries. A Failure says whether that could help and how long the provider asked to wait; the loop
// owns the decision, since a retry costs budget and has to be recorded.
package model
