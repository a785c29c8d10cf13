//go:build !race

package webhooks_test

// large is a payload near GitHub's limit.
const large = 20 << 20
