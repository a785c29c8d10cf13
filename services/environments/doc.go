// Package environments registers customers' machines and forwards admitted commands to them.
//
// Hears: call.admitted for route exec; and the control stream, as its view of keys and environments.
//
// Says: environment.registered; the outcomes of exec calls.
//
// Owns: environments. Nothing is attached to a run unless somebody attaches it, and no connector can enrol in this
// version, so every command is answered as failed, with code unavailable.
//
// Never: runs a command itself.
package environments
