package auth

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// vouchers are short-lived secrets in memory that stand for a token.
type vouchers struct {
	life     time.Duration
	perToken int // the oldest makes room
	most     int // over all; more are refused, so that nobody can push others out

	mu    sync.Mutex
	valid map[Hash]voucher
}

type voucher struct {
	token   Hash
	expires time.Time
}

func newVouchers(life time.Duration, perToken, most int) *vouchers {
	return &vouchers{life: life, perToken: perToken, most: most, valid: map[Hash]voucher{}}
}

// issue makes a voucher for a token.
func (v *vouchers) issue(token Hash, now time.Time) (text string, expires time.Time, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var oldest Hash
	own := 0
	for h, w := range v.valid {
		switch {
		case !now.Before(w.expires):
			delete(v.valid, h)
		case w.token == token:
			if own++; own == 1 || w.expires.Before(v.valid[oldest].expires) {
				oldest = h
			}
		}
	}
	if own >= v.perToken {
		delete(v.valid, oldest)
	}
	if len(v.valid) >= v.most {
		return "", time.Time{}, problem.New(problem.Busy, "too many people log in at the moment; try again later")
	}
	text, expires = random(), now.Add(v.life)
	v.valid[sha256.Sum256([]byte(text))] = voucher{token, expires}
	return text, expires, nil
}

// find gives the token that a voucher stands for.
func (v *vouchers) find(text string, now time.Time) (Hash, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w, ok := v.valid[sha256.Sum256([]byte(text))]
	return w.token, ok && now.Before(w.expires)
}

// take is find, once: of two that ask at the same moment, one gets it.
func (v *vouchers) take(text string, now time.Time) (Hash, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := Hash(sha256.Sum256([]byte(text)))
	w, ok := v.valid[h]
	delete(v.valid, h)
	return w.token, ok && now.Before(w.expires)
}
