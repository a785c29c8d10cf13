// Package scriptmodel is a language model that is none: a server that speaks the wire protocols of real providers and
// plays a script. It makes runs repeatable, offline and free of charge, for the sample and for tests.
//
// It never passes for a model. Its model id begins with "scripted-", every answer carries the header Scripted-Model,
// and ids, the system fingerprint and the owner in the list of models say "scripted".
//
// What it says depends on the request alone: the turn played is the number of the assistant's turns in it. So a
// request that is repeated, or resumed by another process, gets the same answer with the same call ids. Only faults
// count, since "fail twice, then answer" has to.
//
// It is as strict as the providers where that catches mistakes: an unknown model, or a tool call without exactly one
// result, is an error.
package scriptmodel
