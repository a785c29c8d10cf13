// Package run holds the events of one task of a hosted agent, from prompt to terminal state.
//
//	created -> model_requested -> model_completed -> (calls) -> model_requested -> ... -> completed
//	                 |  ^                                                              -> failed
//	                 v  |                                                              -> cancelled
//	            model_failed
package run

import (
	"encoding/json"
	"time"

	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/id"
)

// Created starts a run. Agent is the state that the run keeps to its end, whatever happens to the agent meanwhile;
// grants are looked at afresh on every call.
type Created struct {
	Run     id.Run        `json:"run"`
	Session id.Session    `json:"session"`
	Agent   agent.Defined `json:"agent"`
	Trigger id.Trigger    `json:"trigger,omitempty"`
	Hook    id.Delivery   `json:"hook,omitempty"`
	Taint   []string      `json:"taint,omitempty"` // origins of content in the prompt that the tenant does not vouch for
	Body    Prompt        `json:"body"`
}

// Kind implements schemas.Event.
func (Created) Kind() string { return "run.created" }

// Prompt is what the run was asked to do. A run with a script asks no model: a person wrote what the agent does, and it
// ends as the script does.
type Prompt struct {
	Text   string          `json:"text"`
	Script string          `json:"script,omitempty"` // JavaScript or TypeScript; Text is its name then
	Input  json.RawMessage `json:"input,omitempty"`  // of the script: an object
}

// ModelRequested says that a step's model call is about to be made. Attempt counts from 1.
type ModelRequested struct {
	Run       id.Run    `json:"run"`
	Step      int       `json:"step"`
	Attempt   int       `json:"attempt"`
	Digest    string    `json:"digest"` // SHA-256 of the rendered request
	NotBefore time.Time `json:"not_before,omitzero"`
}

// Kind implements schemas.Event.
func (ModelRequested) Kind() string { return "run.model_requested" }

// ModelCompleted is a whole model answer, recorded only when its terminal marker was seen.
type ModelCompleted struct {
	Run          id.Run `json:"run"`
	Step         int    `json:"step"`
	InputTokens  int    `json:"input_tokens"`
	OutputTokens int    `json:"output_tokens"`
	Body         Answer `json:"body"`
}

// Kind implements schemas.Event.
func (ModelCompleted) Kind() string { return "run.model_completed" }

// Answer is what the model said.
type Answer struct {
	Text  string          `json:"text,omitempty"`
	Calls []ToolUse       `json:"calls,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"` // what only the provider can read and wants back
}

// ToolUse is a tool call that the model asked for. ID is the model's, Call is ours.
type ToolUse struct {
	ID   string          `json:"id"`
	Call id.Call         `json:"call"`
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
	Via  string          `json:"via,omitempty"` // the tool by which the model named Tool, where it did not call that itself
}

// ModelFailed is a model call that gave no whole answer.
type ModelFailed struct {
	Run        id.Run `json:"run"`
	Step       int    `json:"step"`
	Attempt    int    `json:"attempt"`
	Code       string `json:"code"`
	Message    string `json:"message"`
	Retryable  bool   `json:"retryable"`
	RetryAfter int    `json:"retry_after_ms,omitempty"`
}

// Kind implements schemas.Event.
func (ModelFailed) Kind() string { return "run.model_failed" }

// CancelRequested asks the loop to stop the run.
type CancelRequested struct {
	Run    id.Run `json:"run"`
	Reason string `json:"reason,omitempty"`
}

// Kind implements schemas.Event.
func (CancelRequested) Kind() string { return "run.cancel_requested" }

// Completed ends a run with its result.
type Completed struct {
	Run    id.Run `json:"run"`
	Steps  int    `json:"steps"`
	Calls  int    `json:"calls"`
	Tokens int    `json:"tokens"`
	Body   Result `json:"body"`
}

// Kind implements schemas.Event.
func (Completed) Kind() string { return "run.completed" }

// Result is the run's last word.
type Result struct {
	Text string `json:"text"`
}

// Failed ends a run without a result.
type Failed struct {
	Run     id.Run `json:"run"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Kind implements schemas.Event.
func (Failed) Kind() string { return "run.failed" }

// Cancelled ends a run that a person stopped.
type Cancelled struct {
	Run    id.Run `json:"run"`
	Reason string `json:"reason,omitempty"`
}

// Kind implements schemas.Event.
func (Cancelled) Kind() string { return "run.cancelled" }
