// Package command is the command line: what each command asks the API, and how its answer is told.
//
// Data goes to standard output and everything that is said about it to standard error. Nobody is asked a question
// without a terminal to answer at. Exit codes are those of problem.ExitCode, and 130 after an interrupt.
package command
