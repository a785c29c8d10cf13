// Package duplex carries a stream of bytes both ways between two ends over something that passes messages on, and may lose
// them or be cut and come back: a WebSocket to the gateway, and the bus behind it. What is between the ends keeps nothing.
//
// Each direction has a window: a sender keeps what the other end's reader has not taken, at most Window bytes, and waits
// beyond that; what was not received is sent again after a cut or a while. So both ends'
// memory is bounded, and nothing is lost or doubled as long as both live.
//
//	'd' stream offset bytes      a piece; stream Gap has the count of lost bytes in place of them
//	'a' received taken           what was received in order, and what its reader took
//	'f' offset bytes             the end of a direction, with a last word
package duplex
