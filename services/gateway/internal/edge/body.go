package edge

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// bodyWithin is how long a client may take to send what it said it would.
const bodyWithin = 30 * time.Second

// Body reads a request's whole body, of at most limit bytes.
func Body(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	control := http.NewResponseController(w)
	// Not every writer has deadlines. Where there is one it is lifted again, since it would end a long answer too.
	_ = control.SetReadDeadline(time.Now().Add(bodyWithin))
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, problem.New(problem.TooLarge, "the body is over %d bytes", limit)
	case err != nil:
		return nil, problem.Wrap(err, problem.Invalid, "the body did not arrive whole")
	}
	return body, nil
}
