// Package ask holds what services ask each other by RPC, and what they answer. schemas/asking.go says who may ask
// what.
package ask

import (
	"encoding/json"
	"time"

	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/artifact"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/target"
	"github.com/execwarden/execwarden/schemas/trigger"
)

// Sequence is where something stands on EW_CONTROL. It is the answer to every definition, and the question of a
// barrier.
type Sequence struct {
	Seq uint64 `json:"seq"`
}

// InForce says that nothing acts any more on what was before the event at a sequence of EW_CONTROL.
type InForce struct {
	Seq         uint64   `json:"seq"`
	Heard       int      `json:"heard"`            // instances that have heard it
	Fenced      []string `json:"fenced,omitempty"` // instances that have not, and start nothing until they have
	ConfirmedMS float64  `json:"confirmed_ms"`     // how long that took, in milliseconds
}

// DefineConnection makes or changes a connection. Credential replaces the one that is there; empty keeps it.
type DefineConnection struct {
	Connection connection.Defined `json:"connection"`
	Credential string             `json:"credential,omitempty"`
}

// DiffConnection asks which tools of a connection are described otherwise than when they were granted.
type DiffConnection struct {
	Connection id.Connection `json:"connection"`
}

// ConnectionDiff is what changed under grants.
type ConnectionDiff struct {
	Tools     []ToolDiff `json:"tools"`
	Truncated bool       `json:"truncated,omitempty"` // there is more than one answer holds
}

// ToolDiff is how the description of a tool differs from what some grants were made for.
type ToolDiff struct {
	Tool      string        `json:"tool"` // connection.tool
	ChangedAt time.Time     `json:"changed_at"`
	Grants    []id.Grant    `json:"grants"`  // that hold the tool's calls because of it
	Changes   []FieldChange `json:"changes"` // at most 100; none when what was granted is not recorded
}

// FieldChange is a part of a tool's description that differs. Old or New is empty when it was not there, or is not.
type FieldChange struct {
	Field string `json:"field"` // "description", "effect", "writes", or a path such as "schema.properties.to.type"
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

// BeginLogin asks for the way to log in to a connection's provider. Redirect is where the browser comes back to.
type BeginLogin struct {
	Connection id.Connection `json:"connection"`
	Redirect   string        `json:"redirect"`
}

// LoginBegun is a login that waits for a member in a browser. The connection.login_changed of Attempt says how it ended.
type LoginBegun struct {
	Attempt   id.Login  `json:"attempt"`
	URL       string    `json:"url"` // where the member logs in; whoever has it can finish this login
	ExpiresAt time.Time `json:"expires_at"`
}

// LookLogin asks what login a state belongs to. It uses nothing up.
type LookLogin struct {
	State string `json:"state"`
}

// WaitingLogin is a login that waits.
type WaitingLogin struct {
	Connection id.Connection `json:"connection"`
	URL        string        `json:"url"`    // of the connection
	Issuer     string        `json:"issuer"` // of the authorization server
	By         id.Member     `json:"by"`     // who began it
}

// FinishLogin is what the authorization server sent the browser back with. A state is used up by it.
type FinishLogin struct {
	State       string `json:"state"`
	Code        string `json:"code,omitempty"`
	Issuer      string `json:"issuer,omitempty"`      // RFC 9207
	Error       string `json:"error,omitempty"`       // RFC 6749 section 4.1.2.1, in place of a code
	Description string `json:"description,omitempty"` // of the error
}

// FinishedLogin is a login that succeeded.
type FinishedLogin struct {
	Connection id.Connection `json:"connection"`
}

// ImportPackage makes or changes the API package of a connection of type api. Upload is a zip archive in the blob store,
// with the manifest as manifest.yaml beside the document's files.
type ImportPackage struct {
	Connection id.Connection `json:"connection"`
	Upload     string        `json:"upload"`
	Document   string        `json:"document"`
}

// Imported is what an import came to.
type Imported struct {
	Seq        uint64   `json:"seq"`
	Digest     string   `json:"digest"`
	Operations int      `json:"operations"`
	Changes    []string `json:"changes"`            // against the package that was there, a line each; at most 200
	Warnings   []string `json:"warnings,omitempty"` // what the document lacks, a line each; at most 100
}

// DefineHook makes or changes a webhook endpoint. Secret replaces the one that is there.
type DefineHook struct {
	Hook   id.Hook `json:"hook"`
	Secret string  `json:"secret"`
}

// DefineTrigger makes or changes a trigger.
type DefineTrigger struct {
	Trigger trigger.Defined `json:"trigger"`
}

// CreateGrant makes a grant.
type CreateGrant struct {
	Grant grant.Created `json:"grant"`
}

// RevokeGrant ends a grant.
type RevokeGrant struct {
	Grant  id.Grant `json:"grant"`
	Reason string   `json:"reason,omitempty"`
}

// SearchTools asks which tools an agent's scripts may call in a run that a query's words say most about. Limit is at
// most and by default 20.
type SearchTools struct {
	Agent id.Agent `json:"agent"`
	Run   id.Run   `json:"run"`
	Query string   `json:"query"`
	Limit int      `json:"limit,omitempty"`
}

// FoundTools are tools, the best first.
type FoundTools struct {
	Tools []FoundTool `json:"tools"`
}

// FoundTool is a tool as a search shows it.
type FoundTool struct {
	Name        string `json:"name"`        // connection.tool
	Description string `json:"description"` // its beginning
	Writes      bool   `json:"writes"`
}

// DescribeTool asks for one tool that an agent's scripts may call in a run.
type DescribeTool struct {
	Agent id.Agent `json:"agent"`
	Run   id.Run   `json:"run"`
	Name  string   `json:"name"`
}

// DescribedTool is what a script can know of a tool. Types declares it as TypeScript.
type DescribedTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Writes      bool            `json:"writes"`
	Types       string          `json:"types"`
	Schema      json.RawMessage `json:"schema"` // null when it is larger than an answer may be
}

// ListArtifacts asks what is kept for a session, a run of one, or a conversation of an external agent.
type ListArtifacts struct {
	Of string `json:"of"`
}

// Artifacts lists what is kept, by name. Owner is the session, or the run or conversation that is in none.
type Artifacts struct {
	Owner     string     `json:"owner"`
	Artifacts []Artifact `json:"artifacts"`
}

// Artifact is a kept value without the value.
type Artifact struct {
	Name   string        `json:"name"`
	Type   artifact.Type `json:"type"`
	Size   int           `json:"size"` // bytes
	Digest string        `json:"digest"`
	Run    id.Run        `json:"run"`
	Call   id.Call       `json:"call"` // the script
	KeptAt time.Time     `json:"kept_at"`
	Taint  []string      `json:"taint,omitempty"`
}

// GetArtifact asks for a value.
type GetArtifact struct {
	Of   string `json:"of"`
	Name string `json:"name"`
}

// GotArtifact is a value. One that an answer does not hold is in the blob store, as Upload, where the asker reads it.
type GotArtifact struct {
	Artifact Artifact `json:"artifact"`
	Value    []byte   `json:"value,omitempty"`
	Upload   string   `json:"upload,omitempty"`
}

// ShowTypes asks for the tools that an agent's scripts may call, as TypeScript; for Model, as its model is given them.
type ShowTypes struct {
	Agent id.Agent `json:"agent"`
	Model bool     `json:"model,omitempty"`
}

// Types declares tools. Where there is no room for all, some are declared by their names only, and some are left out.
type Types struct {
	Types   string `json:"types"`   // TypeScript, empty when there is no tool
	Tools   int    `json:"tools"`   // how many a script may call
	Bare    int    `json:"bare"`    // of these, by their names only
	Left    int    `json:"left"`    // of these, not declared
	Runtime bool   `json:"runtime"` // the agent may run scripts at all
}

// ShowAccess asks what an agent could do, and what would become of calls that nobody asked for yet; at most MaxPlanned.
type ShowAccess struct {
	Agent id.Agent      `json:"agent"`
	Calls []PlannedCall `json:"calls,omitempty"`
}

// MaxPlanned is how many planned calls one question has.
const MaxPlanned = 100

// PlannedCall is a call that nobody asked for yet.
type PlannedCall struct {
	Tool    string          `json:"tool"`
	Args    json.RawMessage `json:"args"`
	Tainted bool            `json:"tainted,omitempty"` // the run has read content that nobody vouches for by then
}

// Access is what an agent could do, tool by tool, and what would become of the calls that were planned.
type Access struct {
	Agent agent.Defined `json:"agent"` // without its instructions
	Tools []Reach       `json:"tools"`
	Calls []Foreseen    `json:"calls,omitempty"`
}

// Foreseen is a planned call with what would become of it now. Limits are not looked at: they depend on what was let
// through.
type Foreseen struct {
	PlannedCall
	Decision SimulatedDecision `json:"decision"`
}

// Reach is what an agent could do with one tool.
type Reach struct {
	Tool   string            `json:"tool"`
	Effect connection.Effect `json:"effect"`
	Writes bool              `json:"writes"`
	Word   string            `json:"word"` // "allowed", "held", "depends", "denied"
	Why    string            `json:"why"`
	Rules  []Rule            `json:"rules,omitempty"`
}

// Rule is what one grant says of a tool.
type Rule struct {
	Grant   id.Grant      `json:"grant"`
	Verdict grant.Verdict `json:"verdict"`
	Text    string        `json:"text"`
}

// SimulateGrant asks what recorded calls of the grant's agent would come to with the grant.
type SimulateGrant struct {
	Grant grant.Created `json:"grant"`
	Since time.Time     `json:"since"`
}

// Simulation is where recorded calls would come to something else.
type Simulation struct {
	Looked    int             `json:"looked"` // calls that were decided anew
	Differ    int             `json:"differ"`
	Changed   []SimulatedCall `json:"changed"`             // at most 200 of those that differ
	Truncated bool            `json:"truncated,omitempty"` // there were more calls than one simulation looks at
}

// SimulatedCall is a recorded call, decided as things are and as they would be.
type SimulatedCall struct {
	Call id.Call           `json:"call"`
	Run  id.Run            `json:"run"`
	Tool string            `json:"tool"`
	At   time.Time         `json:"at"`
	Args string            `json:"args"` // the beginning of them
	Now  SimulatedDecision `json:"now"`
	Then SimulatedDecision `json:"then"`
}

// SimulatedDecision is a decision that was not made.
type SimulatedDecision struct {
	Word   string   `json:"word"` // "allowed", "held", "refused"
	Grant  id.Grant `json:"grant,omitempty"`
	Reason string   `json:"reason"`
}

// StartRun asks for a run. A run that exists already is answered as when it was made, so a run with a derived id is
// started once however often it is asked for.
type StartRun struct {
	Run      id.Run          `json:"run,omitempty"` // default: a fresh one
	Agent    id.Agent        `json:"agent"`
	Prompt   string          `json:"prompt"`
	Script   string          `json:"script,omitempty"` // runs this as the agent, and asks no model; Prompt is its name then
	Input    json.RawMessage `json:"input,omitempty"`  // of Script: an object
	Trigger  id.Trigger      `json:"trigger,omitempty"`
	Delivery id.Delivery     `json:"delivery,omitempty"`
	Taint    []string        `json:"taint,omitempty"`
}

// Started is a run that exists.
type Started struct {
	Run id.Run `json:"run"`
	Seq uint64 `json:"seq"` // on EW_ACTIVITY
}

// SetModelKey gives the agent loop the key with which it reaches an agent's model.
type SetModelKey struct {
	Agent id.Agent `json:"agent"`
	Key   string   `json:"key"`
}

// Done is the answer to what gives nothing back.
type Done struct{}

// CancelRun asks for a run to stop.
type CancelRun struct {
	Run    id.Run `json:"run"`
	Reason string `json:"reason,omitempty"`
}

// Visibility asks which tools an agent may call, in a run.
type Visibility struct {
	Agent id.Agent `json:"agent"`
	Run   id.Run   `json:"run,omitempty"`
	As    Listing  `json:"as,omitempty"`
}

// Listing is how tools are listed.
type Listing string

// The ways to list. Empty is every tool with its description and schema, which may be more than an answer carries.
const (
	Folded Listing = "folded" // three tools stand for those of a connection that has too many, see connection.Folded
	Names  Listing = "names"  // only names
)

// VisibleTool is a tool as an agent sees it.
type VisibleTool struct {
	Name        string          `json:"name"` // connection.tool
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	// Types tells a model, with the tool that runs scripts, which tools those may call. It is long, and apart from the
	// description because not every protocol takes a long one.
	Types string `json:"types,omitempty"`
}

// VisibleTools lists tools.
type VisibleTools struct {
	Tools []VisibleTool `json:"tools"`
}

// DefineTarget makes or changes a place where approvers are told. Address is a URL or a mail address; empty keeps the one
// that is there. Secret signs a webhook's notices, as Standard Webhooks writes it (whsec_ and base64); empty keeps the one
// that is there, or has one made.
type DefineTarget struct {
	Target  target.Defined `json:"target"`
	Address string         `json:"address,omitempty"`
	Secret  string         `json:"secret,omitempty"`
}

// DefinedTarget is the answer. Secret is there when it was made, and is not shown again.
type DefinedTarget struct {
	Seq    uint64 `json:"seq"`
	Secret string `json:"secret,omitempty"`
}

// TestTarget has a notice sent that is about nothing.
type TestTarget struct {
	Target id.Target `json:"target"`
}

// DecideApproval is a member's decision. Digest is what they saw: it has to be what the approval is for.
type DecideApproval struct {
	Approval id.Approval `json:"approval"`
	Digest   string      `json:"digest"`
	Approve  bool        `json:"approve"`
	ForRun   bool        `json:"for_run,omitempty"` // later calls of the run like it, too: for members who may make grants
	Note     string      `json:"note,omitempty"`
}

// EditApproval puts other arguments in the place of those that wait. Digest is of what the member saw.
type EditApproval struct {
	Approval id.Approval     `json:"approval"`
	Digest   string          `json:"digest"`
	Args     json.RawMessage `json:"args"`
	Note     string          `json:"note,omitempty"`
}

// CheckEdit asks the broker what it would say of a held call with other arguments. Requested is the call's request.
type CheckEdit struct {
	Run       id.Run          `json:"run"`
	Call      id.Call         `json:"call"`
	Requested uint64          `json:"requested_seq"`
	Args      json.RawMessage `json:"args"`
}

// CheckedEdit is what a decision on edited arguments is about, and who has to make it. Args are as they would be sent.
type CheckedEdit struct {
	Args     json.RawMessage `json:"args"`
	Digest   string          `json:"digest"`
	Grant    id.Grant        `json:"grant"`
	Reason   string          `json:"reason"`
	Quorum   int             `json:"quorum,omitempty"`
	Approver member.Role     `json:"approver,omitempty"`
	FourEyes bool            `json:"four_eyes,omitempty"`
}

// ListApprovals asks for approvals; with Open, only those that wait. A page has what fits into one answer.
type ListApprovals struct {
	Open   bool   `json:"open"`
	Limit  int    `json:"limit,omitempty"`  // default and most: 100
	Before string `json:"before,omitempty"` // what the last page called next
}

// ShowApproval asks for one approval.
type ShowApproval struct {
	Approval id.Approval `json:"approval"`
}

// Approval is an approval with what became of it. After an edit, the digest, the arguments and what the grant says are
// those of the last edit; Asked is what the agent asked for.
type Approval struct {
	approval.Requested
	State     string          `json:"state"` // "waiting", "approved", "denied", "expired"
	By        string          `json:"by,omitempty"`
	Escalated bool            `json:"escalated,omitempty"` // it waits for so long that more people were told
	ForRun    bool            `json:"for_run,omitempty"`   // approved for the rest of the run
	Votes     []id.Member     `json:"votes,omitempty"`     // who approved so far, while more have to
	Asked     json.RawMessage `json:"asked,omitempty"`     // the arguments before anybody edited them
	Editors   []id.Member     `json:"editors,omitempty"`   // who edited them, each once
}

// Approvals is a page of approvals, the newest request first.
type Approvals struct {
	Approvals []Approval `json:"approvals"`
	Next      string     `json:"next,omitempty"` // empty on the last page
}

// Event is an event as the ledger recorded it. Raw is the envelope's exact bytes; for what could not be decoded they
// may be no JSON.
type Event struct {
	Stream   string    `json:"stream"`
	Seq      uint64    `json:"seq"`
	Subject  string    `json:"subject"`
	Kind     string    `json:"kind"`
	Raw      []byte    `json:"raw"`
	StoredAt time.Time `json:"stored_at"`
}

// Events asks for recorded events after a cursor. Run, Kind (a glob with '*') and Actor narrow it.
type Events struct {
	After Cursor `json:"after"`
	Run   id.Run `json:"run,omitempty"`
	Kind  string `json:"kind,omitempty"`
	Actor string `json:"actor,omitempty"`
	Limit int    `json:"limit,omitempty"` // default and most: 200
}

// EventPage is a page of events, each stream's in order, and where to go on.
type EventPage struct {
	Events []Event `json:"events"`
	Next   Cursor  `json:"next"`
	More   bool    `json:"more"`
}

// Runs asks for the newest runs.
type Runs struct {
	Limit  int    `json:"limit,omitempty"` // default 50, most 200
	Before string `json:"before,omitempty"`
}

// RunRow is a run in a list.
type RunRow struct {
	Run     id.Run    `json:"run"`
	Agent   id.Agent  `json:"agent"`
	State   string    `json:"state"` // "running", "waiting_approval", "completed", "failed", "cancelled"
	Trigger string    `json:"trigger,omitempty"`
	Created time.Time `json:"created"`
	Ended   time.Time `json:"ended,omitzero"`
	Events  int       `json:"events"`
	Message string    `json:"message,omitempty"` // the result, or why there is none
}

// RunPage is a page of runs.
type RunPage struct {
	Runs []RunRow `json:"runs"`
	Next string   `json:"next,omitempty"`
}

// Timeline asks for everything that happened in a run.
type Timeline struct {
	Run   id.Run `json:"run"`
	After uint64 `json:"after,omitempty"` // EW_ACTIVITY sequence to go on from
}

// Verify asks the ledger to prove itself for the tenant.
type Verify struct{}

// Verified is the outcome of a verification.
type Verified struct {
	Verdict     string   `json:"verdict"` // "verified", "tampered", "incomplete", "unverifiable"
	Leaves      int64    `json:"leaves"`
	Checkpoints int      `json:"checkpoints"`
	Trees       []Tree   `json:"trees"`
	Faults      []string `json:"faults,omitempty"`
}

// Tree is one stream's tree of a tenant.
type Tree struct {
	Stream string `json:"stream"`
	Size   int64  `json:"size"`
	Root   string `json:"root"`
}

// Position asks how far the ledger has recorded the streams.
type Position struct{}
