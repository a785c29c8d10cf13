package approvals

import (
	"crypto/x509"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"os"
	"time"

	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/services/approvals/internal/courier"
)

// Config is the service's own settings.
type Config struct {
	ApprovalLife time.Duration `name:"approval_life" default:"24h" help:"how long a held call waits for a member"`
	ConsoleURL   string        `name:"console_url" help:"where browsers find the console, such as https://warden.example.com; notices link there. Default: they have no link"`
	NoticeRetry  time.Duration `name:"notice_retry" default:"5s" help:"the first pause before a notice is sent again; it doubles, up to 15m"`
	SMTP
}

// SMTP is the mail server that takes the notices of targets of type mail.
type SMTP struct {
	SMTPHost         string `name:"smtp_host" help:"mail server that takes notices; without one no mail is sent"`
	SMTPPort         int    `name:"smtp_port" default:"587" help:"its port"`
	SMTPSecurity     string `name:"smtp_security" default:"starttls" help:"starttls, implicit (TLS from the first byte, usually port 465), or none, for a server on this machine only"`
	SMTPFrom         string `name:"smtp_from" help:"mail address that notices come from"`
	SMTPUsername     string `name:"smtp_username" help:"user at the mail server; empty: it wants none"`
	SMTPPasswordFile string `name:"smtp_password_file" help:"file with that user's password, mode 0600"`
	SMTPCAFile       string `name:"smtp_ca_file" help:"file with the PEM certificates that the mail server's is checked against; default: the system's"`
}

func (c Config) validate() error {
	if c.ApprovalLife < time.Second || c.ApprovalLife > 14*24*time.Hour {
		return problem.New(problem.Invalid, "approval_life %s is outside [1s, 336h]", c.ApprovalLife)
	}
	if c.NoticeRetry < time.Millisecond || c.NoticeRetry > maxRetry {
		return problem.New(problem.Invalid, "notice_retry %s is outside [1ms, %s]", c.NoticeRetry, maxRetry)
	}
	if u, err := url.Parse(c.ConsoleURL); c.ConsoleURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Path != "" && u.Path != "/") {
		return problem.New(problem.Invalid, "console_url %q is not an http(s) URL of a host alone", c.ConsoleURL)
	}
	return nil
}

// server reads the mail server's settings, nil when there is none.
func (c SMTP) server() (*courier.Mail, error) {
	if c.SMTPHost == "" {
		return nil, nil
	}
	m := &courier.Mail{Host: c.SMTPHost, Port: c.SMTPPort, Security: courier.Security(c.SMTPSecurity), From: c.SMTPFrom, Username: c.SMTPUsername}
	_, fromErr := mail.ParseAddress(c.SMTPFrom)
	switch {
	case c.SMTPPort < 1 || c.SMTPPort > 65535:
		return nil, problem.New(problem.Invalid, "smtp_port %d is not a port", c.SMTPPort)
	case m.Security != courier.StartTLS && m.Security != courier.Implicit && m.Security != courier.None:
		return nil, problem.New(problem.Invalid, "smtp_security %q is not starttls, implicit or none", c.SMTPSecurity)
	case m.Security == courier.None && !loopback(c.SMTPHost):
		return nil, problem.New(problem.Invalid, "smtp_security none is for a mail server on this machine; %s is another", c.SMTPHost)
	case fromErr != nil:
		return nil, problem.New(problem.Invalid, "smtp_from %q is not a mail address", c.SMTPFrom)
	case (c.SMTPUsername == "") != (c.SMTPPasswordFile == ""):
		return nil, problem.New(problem.Invalid, "smtp_username and smtp_password_file go together")
	}
	if c.SMTPPasswordFile != "" {
		text, err := keyfile.Read(c.SMTPPasswordFile)
		if err != nil {
			return nil, problem.Wrap(err, problem.Invalid, "smtp_password_file: %s", problem.DetailOf(err).Message)
		}
		m.Password = vault.NewSecret(text)
	}
	if c.SMTPCAFile != "" {
		pem, err := os.ReadFile(c.SMTPCAFile)
		m.RootCAs = x509.NewCertPool()
		if err != nil || !m.RootCAs.AppendCertsFromPEM(pem) {
			return nil, problem.New(problem.Invalid, "smtp_ca_file %s cannot be read, or has no certificate", c.SMTPCAFile)
		}
	}
	return m, nil
}

func loopback(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.IsLoopback()
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
