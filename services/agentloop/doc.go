// Package agentloop runs the loop of hosted agents.
//
// Hears: run.*, its own events, each of which hands on the custody of the run; the outcomes of its runs' calls; and
// the control stream, as its view of agents.
//
// Says: run.*, call.requested, session.opened.
//
// Owns: sessions and runs, their transcripts and budgets, and the keys of agents' models.
//
// Never: keeps a machine or a connection for a run that waits, records a model's answer without its terminal marker,
// or calls a tool itself.
//
//	created -> model_requested -> (the model) -> model_completed -> call.requested ... outcomes -> model_requested
//	                 ^                  |                                                  \-> completed
//	                 \-- model_failed <-/                                                   -> failed, cancelled
//
// Every step is one short handler: fold what is stored, decide the one next thing, append it after what was seen. Of
// two instances that decide at once, one appends and the other folds again.
package agentloop
