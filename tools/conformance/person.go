package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// person is a member at a browser: logged in to the console, reading pages and pressing their buttons.
type person struct {
	api  string
	http *http.Client
}

// maxPage is the most that is read of a page, in bytes.
const maxPage = 1 << 20

// seat logs a member in to the console as they do: with a link that works once.
func (s *site) seat(ctx context.Context) (*person, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	p := &person{api: s.warden.At().API, http: &http.Client{Jar: jar, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	var link struct {
		URL string `json:"url"`
	}
	if err := s.ask(ctx, http.MethodPost, "/v1/logins", nil, &link); err != nil {
		return nil, err
	}
	_, err = p.press(ctx, link.URL, url.Values{})
	return p, err
}

// goTo looks at an address, and gives what is there: a page, or the address that it leads on to.
func (p *person) goTo(ctx context.Context, at string) (page, on string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return "", "", err
	}
	return p.look(r)
}

func (p *person) look(r *http.Request) (page, on string, err error) {
	resp, err := p.http.Do(r)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return "", "", err
	}
	if resp.StatusCode >= 400 {
		return "", "", fmt.Errorf("%s %s answers %d: %s", r.Method, r.URL.Path, resp.StatusCode, complaint(string(raw)))
	}
	if to := resp.Header.Get("Location"); to != "" {
		next, err := r.URL.Parse(to)
		if err != nil {
			return "", "", err
		}
		return "", next.String(), nil
	}
	return string(raw), "", nil
}

var (
	field = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
	form  = regexp.MustCompile(`<form method="post" action="([^"]*)">`)
	bad   = regexp.MustCompile(`<p class="bad">([^<]*)</p>`)
)

// complaint is what a page of the console says went wrong.
func complaint(page string) string {
	if m := bad.FindStringSubmatch(page); m != nil {
		return html.UnescapeString(m[1])
	}
	return fmt.Sprintf("%.300s", page)
}

// press fills in the form of a page of the console, and gives where that leads on to, empty when it leads nowhere.
func (p *person) press(ctx context.Context, at string, choices url.Values) (on string, err error) {
	page, _, err := p.goTo(ctx, at)
	if err != nil {
		return "", err
	}
	action := form.FindStringSubmatch(page)
	if action == nil || !strings.HasPrefix(at, p.api) {
		return "", fmt.Errorf("at %.80s is no form of the console", at)
	}
	for _, m := range field.FindAllStringSubmatch(page, -1) {
		choices.Set(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.api+action[1], strings.NewReader(choices.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", p.api)
	_, on, err = p.look(r)
	return on, err
}

// letIn consents to a client that sent the browser here, and goes where the console leads back to: to the client.
func (p *person) letIn(ctx context.Context, at, agent string) error {
	back, err := p.press(ctx, at, url.Values{"agent": {"agt_" + agent}, "decision": {"allow"}})
	if err != nil {
		return err
	}
	if back == "" {
		return errors.New("the consent leads nowhere")
	}
	_, _, err = p.goTo(ctx, back)
	return err
}

// connect logs in at a connection's authorization server, which here asks nothing and sends the browser back, and presses the
// console's button.
func (p *person) connect(ctx context.Context, at string) error {
	_, back, err := p.goTo(ctx, at)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(back, p.api+"/oauth/callback?") {
		return fmt.Errorf("the authorization server leads to %.120q, and not back", back)
	}
	_, err = p.press(ctx, back, url.Values{})
	return err
}

// ask asks the API as the owner. Problems are the API's.
func (s *site) ask(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = strings.NewReader(string(raw))
	}
	r, err := http.NewRequestWithContext(ctx, method, s.warden.At().API+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+s.owner)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
	if err != nil {
		return err
	}
	if d := problem.ReadHTTP(raw); d != nil && resp.StatusCode >= 400 {
		return problem.New(d.Code, "%s", d.Message)
	}
	if resp.StatusCode >= 400 {
		return fmt.Errorf("%s %s answers %d", method, path, resp.StatusCode)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}
