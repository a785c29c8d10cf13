package courier

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/target"
)

// mailbox is an SMTP server that keeps what it takes.
type mailbox struct {
	mu     sync.Mutex
	taken  []string
	to     []string
	secure []bool
	refuse error // of the recipient
	users  map[string]string
}

type session struct {
	box  *mailbox
	conn *smtp.Conn
	in   bool
}

func (b *mailbox) NewSession(c *smtp.Conn) (smtp.Session, error) {
	return &session{box: b, conn: c}, nil
}

func (s *session) Mail(string, *smtp.MailOptions) error {
	if s.box.users != nil && !s.in {
		return smtp.ErrAuthRequired
	}
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	if s.box.refuse != nil {
		return s.box.refuse
	}
	s.box.to = append(s.box.to, to)
	return nil
}

func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	_, secure := s.conn.TLSConnectionState()
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	s.box.taken, s.box.secure = append(s.box.taken, string(raw)), append(s.box.secure, secure)
	return err
}

func (s *session) Reset()        {}
func (s *session) Logout() error { return nil }

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if s.box.users[user] == "" || s.box.users[user] != password {
			return errors.New("no")
		}
		s.in = true
		return nil
	}), nil
}

// certificate makes one for 127.0.0.1 and the pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// serve starts the mailbox's server; with implicit, TLS comes first.
func serve(t *testing.T, box *mailbox, config *tls.Config, implicit bool) (port int) {
	t.Helper()
	srv := smtp.NewServer(box)
	srv.Domain, srv.TLSConfig = "mail.example.com", config
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port = listener.Addr().(*net.TCPAddr).Port
	if implicit {
		listener = tls.NewListener(listener, config)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = srv.Serve(listener) }) // until it is closed
	t.Cleanup(func() { _ = srv.Close(); running.Wait() })
	return port
}

func TestMail(t *testing.T) {
	cert, pool := certificate(t)
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	users := map[string]string{"warden": "a password"}
	n := waiting()
	n.Tool, n.Reason = "x.ü\r\nBcc: everybody@example.com", "because\r\n.\r\nQUIT"
	for name, c := range map[string]struct {
		config   *tls.Config
		implicit bool
		security Security
		users    map[string]string
		password string
		pool     *x509.CertPool
		taken    bool
		secure   bool
	}{
		"starttls":                         {config: config, security: StartTLS, users: users, password: "a password", pool: pool, taken: true, secure: true},
		"implicit tls":                     {config: config, implicit: true, security: Implicit, users: users, password: "a password", pool: pool, taken: true, secure: true},
		"on this machine":                  {security: None, pool: pool, taken: true},
		"a server that offers no tls":      {security: StartTLS, pool: pool},
		"a server that nobody vouches for": {config: config, security: StartTLS},
		"another password":                 {config: config, security: StartTLS, users: users, password: "another", pool: pool},
	} {
		box := &mailbox{users: c.users}
		m := &Mail{Host: "127.0.0.1", Port: serve(t, box, c.config, c.implicit), Security: c.security, From: "warden@example.com", RootCAs: c.pool}
		if c.users != nil {
			m.Username, m.Password = "warden", vault.NewSecret(c.password)
		}
		err := New(m).Carry(t.Context(), target.Mail, Address{To: "oncall@example.com"}, n)
		if (err == nil) != c.taken || len(box.taken) != map[bool]int{true: 1}[c.taken] {
			t.Errorf("%s: %v, %d taken", name, err, len(box.taken))
			continue
		}
		if !c.taken {
			var r *Refusal
			if !errors.As(err, &r) || r.Final || strings.Contains(r.Reason, "oncall") {
				t.Errorf("%s: %+v", name, err)
			}
			continue
		}
		got, err := mail.ReadMessage(strings.NewReader(box.taken[0]))
		if err != nil {
			t.Fatal(err)
		}
		subject, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
		if err != nil || subject != "Waits for approval: x.ü  Bcc: everybody@example.com for triage" && subject != "Waits for approval: x.ü Bcc: everybody@example.com for triage" {
			t.Errorf("%s: subject %q, %v", name, subject, err)
		}
		body, err := io.ReadAll(quotedprintable.NewReader(got.Body))
		if err != nil || box.secure[0] != c.secure || len(box.to) != 1 || box.to[0] != "oncall@example.com" {
			t.Errorf("%s: %v, secure %v, to %v", name, err, box.secure, box.to)
		}
		if got.Header.Get("Bcc") != "" || got.Header.Get("Message-Id") != "<ntc_1@example.com>" || got.Header.Get("Auto-Submitted") != "auto-generated" {
			t.Errorf("%s: %v", name, got.Header)
		}
		for _, want := range []string{"https://warden.example.com/approvals/apr_1", "Until: Tue, 01 Dec 2026 12:00:00 UTC", "Why it is held: because"} {
			if !bytes.Contains(body, []byte(want)) {
				t.Errorf("%s: no %q in %s", name, want, body)
			}
		}
	}
}

// What a server says of a mail box is not recorded: servers repeat the address.
func TestMailRefusals(t *testing.T) {
	for _, c := range []struct {
		refuse *smtp.SMTPError
		final  bool
		says   string
	}{
		{&smtp.SMTPError{Code: 550, Message: "<oncall@example.com> unknown"}, true, "the mail server answered 550"},
		{&smtp.SMTPError{Code: 451, Message: "<oncall@example.com> later"}, false, "the mail server answered 451"},
	} {
		box := &mailbox{refuse: c.refuse}
		m := &Mail{Host: "127.0.0.1", Port: serve(t, box, nil, false), Security: None, From: "warden@example.com"}
		var r *Refusal
		if err := New(m).Carry(t.Context(), target.Mail, Address{To: "oncall@example.com"}, waiting()); !errors.As(err, &r) || r.Final != c.final || r.Reason != c.says {
			t.Errorf("%+v", err)
		}
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := gone.Addr().(*net.TCPAddr).Port
	_ = gone.Close()
	var r *Refusal
	if err := New(&Mail{Host: "127.0.0.1", Port: port, Security: None, From: "warden@example.com"}).Carry(t.Context(), target.Mail, Address{To: "oncall@example.com"}, waiting()); !errors.As(err, &r) || r.Final {
		t.Errorf("%+v", err)
	}
	if err := New(nil).Carry(t.Context(), target.Mail, Address{To: "oncall@example.com"}, waiting()); !errors.As(err, &r) || !r.Final {
		t.Errorf("%+v", err)
	}
}
