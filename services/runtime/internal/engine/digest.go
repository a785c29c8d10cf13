package engine

import (
	"crypto"
	"crypto/hmac"
	"crypto/sha1"
	_ "crypto/sha256" // what crypto.Hash finds
	_ "crypto/sha512"
	"hash"

	"github.com/dop251/goja"
)

// digests are the names of js/crypto.js. SHA-1 is there for the APIs that still ask for it.
var digests = map[string]func() hash.Hash{
	"SHA-1": sha1.New, "SHA-256": crypto.SHA256.New, "SHA-384": crypto.SHA384.New, "SHA-512": crypto.SHA512.New,
}

// digest refuses a name that a script got past js/crypto.js.
func (m *machine) digest(name string) func() hash.Hash {
	made := digests[name]
	if made == nil {
		panic(m.vm.NewTypeError("no digest of this name"))
	}
	return made
}

// hostDigest(name, buffer, offset, length)
func (m *machine) hostDigest(c goja.FunctionCall) goja.Value {
	h := m.digest(c.Argument(0).String())()
	h.Write(window(arguments(c, 1)))
	return m.buffer(h.Sum(nil))
}

// hostHMAC(name, key, buffer, offset, length)
func (m *machine) hostHMAC(c goja.FunctionCall) goja.Value {
	h := hmac.New(m.digest(c.Argument(0).String()), bytesOf(c.Argument(1)))
	h.Write(window(arguments(c, 2)))
	return m.buffer(h.Sum(nil))
}

// hostHMACEqual(buffer, buffer) takes as long for every pair.
func (m *machine) hostHMACEqual(c goja.FunctionCall) goja.Value {
	return m.vm.ToValue(hmac.Equal(bytesOf(c.Argument(0)), bytesOf(c.Argument(1))))
}

// arguments are those from the nth on.
func arguments(c goja.FunctionCall, from int) goja.FunctionCall {
	return goja.FunctionCall{This: c.This, Arguments: c.Arguments[min(from, len(c.Arguments)):]}
}
