// Package boot turns a service into a program: configuration, logs, traces, metrics, health, and an ordered end.
package boot
