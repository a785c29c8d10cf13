// Package scripts measures the runtime's worker pool beside what else runs untrusted JavaScript: node's vm module in a
// process of its own, and isolated-vm. Each runs the same programs on the same machine in one run; what counts are the
// ratios.
//
//	programs  what is run
//	house     the runtime's own pool
//	node      the two others, by a driver in peers.js that measures itself as the house does
//	report    rows, and their table
package scripts
