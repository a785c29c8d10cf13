// Package schemas is the language of ExecWarden: every event and where it goes. Other modules import it; it imports
// nothing but itself, and its go.mod has no require line to prove it.
//
// The score of the whole piece, one call from a webhook to the proof (catalogue.go has every kind):
//
//	webhooks      hook.received            an authentic delivery is durable
//	webhooks      hook.routed              a trigger rule asked the agent loop for a run
//	agentloop     run.created              the run exists
//	agentloop     run.model_requested      a step's model call is about to be made
//	agentloop     run.model_completed      the model answered, whole
//	agentloop     call.requested           the answer asks for a tool
//	toolbroker    call.held                the grant wants a person to decide
//	approvals     approval.requested       here is what they will decide on
//	approvals     approval.decided         and this is what they said
//	toolbroker    call.admitted            a permit for the one executor, for these arguments, once
//	executor      call.finished            the outcome, recorded before anybody sees it
//	agentloop     run.completed            the model had no more to ask
//	ledger        ledger.checkpointed      all of the above, provable
//
// Fields are only ever added. A change that old readers would misread is a new kind.
package schemas
