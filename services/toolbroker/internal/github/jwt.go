package github

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// jwtLife is how long an App's own token is valid. GitHub takes at most 10 minutes, from a moment that its clock sees.
const jwtLife = 9 * time.Minute

// signJWT makes the token by which an App speaks for itself. It is dated a minute back, for clocks that disagree.
func signJWT(key *rsa.PrivateKey, issuer string, now time.Time) (string, error) {
	issued := now.Add(-time.Minute)
	claims, err := json.Marshal(struct {
		Issued  int64  `json:"iat"`
		Expires int64  `json:"exp"`
		Issuer  string `json:"iss"`
	}{issued.Unix(), issued.Add(jwtLife).Unix(), issuer})
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + enc.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", problem.Wrap(err, problem.Internal, "the App's token cannot be signed")
	}
	return text + "." + enc.EncodeToString(signature), nil
}

// readPrivateKey reads an RSA key as GitHub gives it (PKCS #1) or as other tools keep it (PKCS #8). Errors show nothing of it.
func readPrivateKey(text string) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, problem.New(problem.Invalid, "the App's private_key is not PEM")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if key, ok := key.(*rsa.PrivateKey); ok {
			return key, nil
		}
	}
	return nil, problem.New(problem.Invalid, "the App's private_key is not an RSA key")
}
