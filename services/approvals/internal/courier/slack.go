package courier

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
)

// slack sends what Slack, Mattermost and others take at an incoming webhook. The URL is the secret.
func (c *Courier) slack(ctx context.Context, to Address, n Notice) error {
	var b strings.Builder
	b.WriteString("*" + escape(n.title()) + "*")
	for _, line := range n.facts() {
		b.WriteString("\n" + escape(line))
	}
	if args := n.args(); args != "" {
		// In a block of code nobody is mentioned and nothing is a link.
		b.WriteString("\n```" + strings.ReplaceAll(escape(args), "`", "'") + "```")
	}
	if n.Link != "" {
		b.WriteString("\n<" + n.Link + "|Open the approval>")
	}
	body, err := json.Marshal(struct {
		Text string `json:"text"`
	}{b.String()})
	if err != nil {
		return &Refusal{Reason: "the notice cannot be written", Final: true}
	}
	return c.post(ctx, to, body, http.Header{})
}

// escape makes text mean itself: links and mentions begin with '<' in Slack, and a word with '@' is a mention elsewhere.
func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "@", "(at)", "`", "'", "*", "∗").Replace(text)
}
