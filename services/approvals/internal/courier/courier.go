// Package courier carries one notice to one target: by a signed webhook, to a chat that takes Slack's incoming webhooks,
// or by mail. It decides nothing and remembers nothing.
package courier

import (
	"context"
	"time"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/target"
)

// SendTimeout bounds one attempt.
const SendTimeout = 8 * time.Second

// Address is where a target is. It is opened for one attempt.
type Address struct {
	To      string // a URL, or a mail address
	Secret  string // signs what a webhook is sent
	Private []string
}

// Refusal says why a notice did not reach its target. It names no address, path or mail box: it is recorded.
type Refusal struct {
	Reason string
	Final  bool          // no later attempt will fare better
	After  time.Duration // how long the target asked to be left alone; zero: it did not say
}

func (r *Refusal) Error() string { return r.Reason }

// Courier carries notices.
type Courier struct {
	Mail *Mail // nil: this deployment sends no mail
	now  func() time.Time
}

// New makes a courier.
func New(mail *Mail) *Courier { return &Courier{Mail: mail, now: time.Now} }

// Carry makes one attempt. Nil says that the target took the notice; a *Refusal says why it did not.
func (c *Courier) Carry(ctx context.Context, by target.Type, to Address, n Notice) error {
	ctx, cancel := context.WithTimeout(ctx, SendTimeout)
	defer cancel()
	switch by {
	case target.Webhook:
		return c.webhook(ctx, to, n)
	case target.Slack:
		return c.slack(ctx, to, n)
	case target.Mail:
		if c.Mail == nil {
			return &Refusal{Reason: "this deployment sends no mail", Final: true}
		}
		return c.Mail.send(ctx, to, n)
	}
	return &Refusal{Reason: "a target of a type that this version does not know", Final: true}
}

// Test is what a test notice is about.
const Test target.About = "test"

// Notice is what a target is told.
type Notice struct {
	ID       id.Notice
	About    target.About
	Tenant   id.Tenant
	Approval id.Approval
	State    string
	By       string
	Agent    id.Agent
	Tool     string
	Run      id.Run
	Grant    id.Grant
	Reason   string // why the call is held
	Expires  time.Time
	Link     string // to the console's page; empty: where that is was not configured
	Args     []byte // nil: the target is not told
	Input    []byte // what is answered with them to what a server asked; nil: nothing, or not told
}
