package ledger

import (
	"encoding/json"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/services/ledger/internal/store"
)

// read takes what lists and searches need from an event's bytes. What cannot be decoded gives nothing, and is a leaf
// all the same.
func read(subject string, raw []byte) store.Meta {
	meta, _ := decode(subject, raw)
	return meta
}

// decode gives beside that the trace that the event belongs to.
func decode(subject string, raw []byte) (meta store.Meta, correlation string) {
	e, at, err := schemas.ParseEnvelope(subject, raw)
	if err != nil {
		return store.Meta{}, ""
	}
	var data struct {
		Call string `json:"call"`
	}
	_ = json.Unmarshal(e.Data, &data) // an event without a call has none
	return store.Meta{
		EventID: string(e.ID), Type: e.Type, Noun: at.Noun, Key: at.Key, Kind: at.Kind(), Time: e.Time, Actor: e.Actor,
		Run: string(e.Run), Call: data.Call,
	}, e.Correlation
}
