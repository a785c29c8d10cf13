// Package bus is the only room that knows Watermill. It connects a service to NATS as its own user, carries
// Watermill's Router over nats.go's jetstream package, and generates who may say and hear what from the catalogue.
//
// A handler hears one message at a time per aggregate and many aggregates at once. A message is acknowledged when
// its handler returns nil, which it does once the consequences are durable; until then heartbeats keep it, and a
// crash hands it to whoever comes next. So the message is the custody of the work, and recovery runs the code of the
// happy path.
package bus
