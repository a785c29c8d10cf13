package courier

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/execwarden/execwarden/libs/vault"
)

// Security is how the way to the mail server is kept private.
type Security string

// The ways. None is for a server on this machine only.
const (
	StartTLS Security = "starttls"
	Implicit Security = "implicit"
	None     Security = "none"
)

// Mail is the server that takes our mail.
type Mail struct {
	Host     string
	Port     int
	Security Security
	From     string
	Username string // empty: the server wants none
	Password vault.Secret
	RootCAs  *x509.CertPool // nil: the system's
}

// send hands the notice to the mail server. Taken is not delivered: what becomes of it there is the server's.
func (m *Mail) send(ctx context.Context, to Address, n Notice) error {
	msg := mail.NewMsg()
	if err := errors.Join(msg.From(m.From), msg.To(to.To)); err != nil {
		return &Refusal{Reason: "the mail address cannot be read", Final: true}
	}
	_, domain, _ := strings.Cut(m.From, "@")
	msg.SetMessageIDWithValue(string(n.ID) + "@" + strings.Trim(domain, ">")) // the same for every attempt
	msg.SetDate()
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no answers by machines
	msg.Subject(n.title())
	lines := append([]string{n.title(), ""}, n.facts()...)
	if args := n.args(); args != "" {
		lines = append(lines, "", "Arguments:", args)
	}
	if n.Link != "" {
		lines = append(lines, "", n.Link)
	}
	msg.SetBodyString(mail.TypeTextPlain, strings.Join(lines, "\n")+"\n")

	client, err := m.client()
	if err != nil {
		return &Refusal{Reason: "the mail server's settings are not valid", Final: true}
	}
	if err := client.DialWithContext(ctx); err != nil {
		return mailRefusal(err)
	}
	defer func() { _ = client.Close() }() // the server has said what it says of the notice
	return mailRefusal(client.Send(msg))
}

func (m *Mail) client() (*mail.Client, error) {
	options := []mail.Option{mail.WithPort(m.Port), mail.WithTimeout(SendTimeout), mail.WithTLSConfig(&tls.Config{ServerName: m.Host, RootCAs: m.RootCAs, MinVersion: tls.VersionTLS12})}
	switch m.Security {
	case Implicit:
		options = append(options, mail.WithSSL())
	case None:
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	default:
		options = append(options, mail.WithTLSPolicy(mail.TLSMandatory))
	}
	if m.Username != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(m.Username), mail.WithPassword(m.Password.Reveal()))
	}
	return mail.NewClient(m.Host, options...)
}

// mailRefusal reads what the server said. Its words are not kept: servers repeat the address in them.
func mailRefusal(err error) error {
	var failed *mail.SendError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &failed):
		return &Refusal{Reason: "the mail server was not reached, or did not let us in"}
	case failed.Reason == mail.ErrSMTPReset:
		return nil // it had taken the notice before
	case failed.ErrorCode() == 0:
		return &Refusal{Reason: "the mail server broke off"}
	}
	return &Refusal{Reason: fmt.Sprintf("the mail server answered %d", failed.ErrorCode()), Final: failed.ErrorCode() >= 500}
}
