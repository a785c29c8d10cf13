// Package runtime runs JavaScript for agents, without a machine: no files, no shell, no network of its own.
//
// Hears: call.admitted for route script; the ends of runs; and the control stream, as its view of agents, grants and keys.
//
// Says: the outcomes of scripts; script.started, .fetching, .fetched, .searched; artifact.kept, .removed, .refused;
// call.requested, for the calls that a script makes.
//
// Owns: scripts and the worker processes that they run in; the artifacts that scripts keep for their session.
//
// Never: lets a script do what its agent may not do by itself: each call of a script is a call like any other, with
// its own decision, approval and record. It never repeats an effect: a script that was cut off is run again over the
// record, and what it called before is answered from there.
//
//	admitted --claim--> worker --call--> call.requested ... outcome --> worker --> finished
//	                          \--fetch--> egress guard, script.fetched
package runtime
