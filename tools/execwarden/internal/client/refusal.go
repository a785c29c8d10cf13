package client

import (
	"io"
	"mime"
	"net/http"

	"github.com/execwarden/execwarden/libs/problem"
)

// maxProblem is how much of a refusal is read, in bytes.
const maxProblem = 64 << 10

// refused reads an RFC 9457 problem document, or makes the best of another answer.
func (c *Client) refused(resp *http.Response) error {
	if isProblem(resp) {
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // what is cut off is no document
		if p := problem.ReadHTTP(raw); p != nil {
			return problem.New(p.Code, "%s", p.Message)
		}
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return problem.New(problem.Invalid, "%s answers with a redirect, which is not followed; set --url to where it leads", c.base)
	}
	return problem.New(codeOf(resp.StatusCode), "%s answers %s without saying why; is it an ExecWarden API?", c.base, resp.Status)
}

func isProblem(resp *http.Response) bool {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && kind == "application/problem+json"
}

// codeOf is the nearest code to a status of a server that says no code: a proxy in between, say.
func codeOf(status int) problem.Code {
	switch status {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return problem.Unauthenticated
	case http.StatusForbidden:
		return problem.Denied
	case http.StatusNotFound:
		return problem.NotFound
	case http.StatusRequestEntityTooLarge:
		return problem.TooLarge
	case http.StatusTooManyRequests:
		return problem.Busy
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return problem.Unavailable
	}
	if status < 500 {
		return problem.Invalid
	}
	return problem.Internal
}
