// Package console is the gateway's face for people: what runs, what happened in a run, and what waits for a decision.
//
// Pages are rendered here, and work without JavaScript; htmx adds live updates. Everything that an agent, a model or a
// provider wrote is hostile text: it goes through html/template, characters that could hide or reorder it are spelt
// out, and the content security policy lets no script but our own run.
package console
