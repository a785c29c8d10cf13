//go:build race

package webhooks_test

// large is smaller under the race detector, which makes JSON of this size slow.
const large = 4 << 20
