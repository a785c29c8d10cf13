// Package environments registers customers' machines, leases their volumes to runs, and forwards admitted commands to
// them.
//
// Hears: call.admitted for route exec; run.cancelled; the control stream, as its view of keys, grants, agents, environments and
// volumes; and connectors: hello, beats, and who asks to be let onto the bus.
//
// Says: environment.registered, connector.welcomed, volume.defined, visit.ended; the outcomes of exec calls.
//
// Owns: environments, volumes and attachments. A volume has one writer: the attachment of its newest epoch.
//
// Never: runs a command itself, and never has one run twice: an order is kept under its call by the machine that it is
// given to, and asking again is how its outcome is found.
//
//	enrolment token --POST--> enrolled --hello--> welcomed --beat--> online
//	admitted --attachment?--> claim --order--> connector (its receipt, its policy) --answer--> finished
//	volume: free --attach--> attached --release--> draining --> free;  --revoke--> free;  --machine gone--> lost
package environments
