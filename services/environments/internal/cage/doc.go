// Package cage holds commands on a customer's machine: what they may open, call and reach, and how all of them are found
// again to be ended. A process closes its cage once, and everything that it starts is in it.
package cage
