// Package files is the file tools of an attached machine: over the volume and the directories that the machine exposes, and
// nothing else. A path is resolved below its root by the kernel, one step at a time, so a link that leads out leads
// nowhere; only plain files are opened. A write is there as a whole or not at all.
package files
