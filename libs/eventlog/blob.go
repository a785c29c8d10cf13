package eventlog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
)

// Sizes of what goes to the blob store: bodies of events over maxInline, in chunks.
const (
	maxInline = 128 << 10
	chunkSize = 512 << 10
	MaxBody   = 40 << 20 // a webhook payload of 25 MiB in base64, and a little
)

// moveBody takes data.body out of the envelope and into the blob store, before the event that cites it is appended:
// a crash between the two leaves a blob that nobody cites, which ages out.
func (l *Log) moveBody(ctx context.Context, e *schemas.Envelope) error {
	var data map[string]json.RawMessage
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return problem.Wrap(err, problem.Invalid, "the data of %s is not an object", e.Type)
	}
	body, ok := data["body"]
	if !ok || len(body) > MaxBody {
		return problem.New(problem.TooLarge, "the data of %s is %d bytes; at most %d in its body can be kept", e.Type, len(e.Data), MaxBody)
	}
	sum := sha256.Sum256(body)
	e.BodyBlob = hex.EncodeToString(sum[:])
	if err := l.putBlob(ctx, shelfOf(*e), body); err != nil {
		return err
	}
	delete(data, "body")
	var err error
	if e.Data, err = json.Marshal(data); err != nil {
		return fmt.Errorf("data without its body: %w", err)
	}
	return nil
}

func (l *Log) restoreBody(ctx context.Context, e *schemas.Envelope) error {
	if e.BodyBlob == "" {
		return nil
	}
	body, err := l.getBlob(ctx, shelfOf(*e), e.BodyBlob)
	if err != nil {
		return err
	}
	var data map[string]json.RawMessage
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return problem.Wrap(err, problem.Internal, "the data of %s is not an object", e.Type)
	}
	data["body"] = body
	e.Data, err = json.Marshal(data)
	return err
}

// Restored puts the body of an event back that was heard without it. A body that is not what the event cites is
// bus.Undecodable; one that cannot be read now is unavailable.
func (l *Log) Restored(ctx context.Context, e schemas.Envelope) (schemas.Envelope, error) {
	err := l.restoreBody(ctx, &e)
	return e, err
}

// shelf is where a body stands: as long as its event does.
type shelf struct {
	stream string
	root   string // of the chunks' subjects, ending in a dot
}

// shelfOf is the shelf of an event's body. Bodies of activity age out, so equal ones of different days are kept apart:
// one that was there already would go before the event that cites it.
func shelfOf(e schemas.Envelope) shelf {
	if entry, ok := schemas.Find(e.Kind()); ok && entry.Stream != schemas.Activity {
		return shelf{bus.KeptStream, fmt.Sprintf("ew.kept.v1.%s.%s.", e.Tenant, e.BodyBlob)}
	}
	return shelf{bus.BlobStream, fmt.Sprintf("ew.blob.v1.%s.%s.%s.", e.Tenant, e.Time.UTC().Format("20060102"), e.BodyBlob)}
}

func (l *Log) putBlob(ctx context.Context, at shelf, body []byte) error {
	// The last chunk goes first: whoever finds chunk 0 finds them all, also when the writer crashed in between.
	chunks := (len(body) + chunkSize - 1) / chunkSize
	for i := chunks - 1; i >= 0; i-- {
		part := body[i*chunkSize : min(len(body), (i+1)*chunkSize)]
		publish, cancel := context.WithTimeout(ctx, appendTimeout)
		msg := &nats.Msg{Subject: at.root + strconv.Itoa(i), Data: part, Header: nats.Header{"Ew-Chunks": {strconv.Itoa(chunks)}}}
		_, err := l.conn.JS.PublishMsg(publish, msg, jetstream.WithExpectLastSequencePerSubject(0))
		cancel()
		var refused *jetstream.APIError
		if errors.As(err, &refused) && stale(refused.ErrorCode) {
			continue // the same bytes are there already
		}
		if err != nil {
			return problem.Wrap(err, problem.AuditUnavailable, "a body of %d bytes could not be kept, so nothing was done", len(body))
		}
	}
	return nil
}

func (l *Log) getBlob(ctx context.Context, at shelf, name string) (json.RawMessage, error) {
	var body []byte
	for i, chunks := 0, 1; i < chunks; i++ {
		m, err := l.getOne(ctx, "$JS.API.DIRECT.GET."+at.stream+"."+at.root+strconv.Itoa(i), nil)
		if err != nil {
			return nil, problem.Wrap(err, problem.Unavailable, "a body in the blob store cannot be read now")
		}
		if i == 0 {
			if chunks, err = strconv.Atoi(m.Header.Get("Ew-Chunks")); err != nil || chunks < 1 || chunks > MaxBody/chunkSize {
				return nil, damaged(name, "has no valid chunk count")
			}
		}
		body = append(body, m.Data...)
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != name {
		return nil, damaged(name, "does not hold the bytes of its name")
	}
	return body, nil
}

// damaged is a fault that no later try mends: the chunks of a blob are written once.
func damaged(name, how string) error {
	return bus.Undecodable(problem.New(problem.Internal, "blob %s %s", name, how))
}

// PutUpload keeps bytes that a person sent until whoever they are for has read them, and gives their name. It ages out
// like the bodies of activity.
func (l *Log) PutUpload(ctx context.Context, tenant id.Tenant, raw []byte) (name string, err error) {
	if len(raw) == 0 || len(raw) > MaxBody {
		return "", problem.New(problem.TooLarge, "an upload has 1 to %d bytes", MaxBody)
	}
	sum := sha256.Sum256(raw)
	name = l.now().UTC().Format("20060102") + "." + hex.EncodeToString(sum[:])
	return name, l.putBlob(ctx, uploadShelf(tenant, name), raw)
}

// GetUpload reads an upload. Problems: invalid, unavailable.
func (l *Log) GetUpload(ctx context.Context, tenant id.Tenant, name string) ([]byte, error) {
	if !uploadName.MatchString(name) {
		return nil, problem.New(problem.Invalid, "%.100q is not the name of an upload", name)
	}
	return l.getBlob(ctx, uploadShelf(tenant, name), name[len("20060102."):])
}

var uploadName = regexp.MustCompile(`^[0-9]{8}\.[0-9a-f]{64}$`)

func uploadShelf(tenant id.Tenant, name string) shelf {
	return shelf{bus.BlobStream, fmt.Sprintf("ew.blob.v1.%s.%s.", tenant, name)}
}
