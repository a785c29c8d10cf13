// Package eventlog appends events to the bus and reads them back.
//
// An aggregate is either always appended after the sequence that the writer saw (AppendAfter), or never (Append):
// the catalogue says which, and mixing them is unsafe on a replicated stream. The expected sequence is the stream
// sequence of the aggregate's last event, and is checked against one filter, made here from the event's own key.
//
// An append that gets no answer is ambiguous, not failed: it is looked for by its event id before anybody is told
// anything.
package eventlog
