// Package fakegithub is the small part of GitHub's REST API that the sample and the tests need, with GitHub's own
// response shapes, status codes, pagination and errors:
//
//	GET  /user
//	GET  /repos/{owner}/{repo}/issues/{number}
//	GET  /repos/{owner}/{repo}/issues/{number}/comments
//	POST /repos/{owner}/{repo}/issues/{number}/comments
//	GET  /repos/{owner}/{repo}/collaborators/{user}/permission
//
// It counts its effects, keeps them in a file when it is given one, and fails on demand, so that a test can kill
// whoever calls it at any moment and then say how often the effect happened.
package fakegithub
