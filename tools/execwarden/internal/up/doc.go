// Package up runs all of ExecWarden in one process: an embedded NATS server with its users and permissions on, a
// private PostgreSQL cluster, and the eight services, each connected as its own user. Nothing takes a shorter way than
// in a cluster.
//
// Order: keys, NATS, streams, then Postgres and the services, which wait for what they need. The end goes backwards:
// services drain while NATS still takes their last events, then NATS closes its files, then Postgres.
package up
