// Package play performs the sample run as a new user would: it starts the world around, starts execwarden up as a
// process of its own, and does everything else with the execwarden command.
package play
