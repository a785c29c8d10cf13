package bus

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/schemas"
)

// Stores beside the event streams.
const (
	KeptStream     = "EW_KEPT" // bodies of control events, for ever
	BlobStream     = "EW_BLOBS"
	DLQStream      = "EW_DLQ"
	OutputStream   = "EW_OUTPUT" // what commands on machines print
	ClaimsBucket   = "claims"
	SecretsBucket  = "secrets"
	PeopleBucket   = "people"
	CountersBucket = "counters"
)

// Waits and bounds of the durables.
const (
	AckWait       = 3 * time.Second
	MaxAckPending = 1024
	claimLapse    = 24 * time.Hour
	outputLife    = 7 * 24 * time.Hour // the exit record, which is an event, lives longer
)

// Layout says how the streams are kept.
type Layout struct {
	Replicas int   // default 1
	MaxBytes int64 // per event stream; default 8 GiB. When full, new events are refused, none is dropped.
}

// Provision makes or updates every stream, bucket and durable. Only the boot user may, since an update can empty a
// stream that denies purges.
func Provision(ctx context.Context, boot *Conn, layout Layout) error {
	if layout.Replicas == 0 {
		layout.Replicas = 1
	}
	if layout.MaxBytes == 0 {
		layout.MaxBytes = 8 << 30
	}
	nouns := map[schemas.Stream][]string{}
	for _, e := range schemas.All() {
		noun, _, _ := strings.Cut(e.Kind, ".")
		nouns[e.Stream] = append(nouns[e.Stream], "ew.v1.*."+noun+".>")
	}
	for _, stream := range []schemas.Stream{schemas.Control, schemas.Activity, schemas.Proofs} {
		cfg := jetstream.StreamConfig{
			Name: string(stream), Subjects: unique(nouns[stream]), Storage: jetstream.FileStorage,
			MaxAge: stream.Retention(), MaxBytes: layout.MaxBytes, MaxMsgSize: schemas.MaxEnvelope + 4096,
			Discard: jetstream.DiscardNew, DenyDelete: true, DenyPurge: true, AllowDirect: true,
			Duplicates: 10 * time.Minute, Replicas: layout.Replicas,
			Metadata: map[string]string{"execwarden": "events"},
		}
		if _, err := boot.JS.CreateOrUpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("stream %s: %w", stream, err)
		}
	}
	plain := []jetstream.StreamConfig{
		{Name: KeptStream, Subjects: []string{"ew.kept.v1.>"},
			MaxMsgsPerSubject: 1, DiscardNewPerSubject: true, Discard: jetstream.DiscardNew, DenyDelete: true, DenyPurge: true},
		// Two days longer than the events: a body is at most a day older than an event that cites it.
		{Name: BlobStream, Subjects: []string{"ew.blob.v1.>"}, MaxAge: schemas.Activity.Retention() + 48*time.Hour,
			MaxMsgsPerSubject: 1, DiscardNewPerSubject: true, Discard: jetstream.DiscardNew, DenyDelete: true, DenyPurge: true},
		{Name: OutputStream, Subjects: []string{"ew.out.v1.>"}, MaxAge: outputLife, Discard: jetstream.DiscardOld, DenyPurge: true},
		{Name: DLQStream, Subjects: []string{"ew.dlq.v1.>"}, MaxAge: schemas.Activity.Retention(), Discard: jetstream.DiscardOld},
	}
	for _, cfg := range plain {
		cfg.Storage, cfg.AllowDirect, cfg.MaxBytes, cfg.Replicas = jetstream.FileStorage, true, layout.MaxBytes, layout.Replicas
		if _, err := boot.JS.CreateOrUpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("stream %s: %w", cfg.Name, err)
		}
	}
	buckets := []jetstream.KeyValueConfig{
		{Bucket: ClaimsBucket, TTL: claimLapse}, {Bucket: SecretsBucket}, {Bucket: CountersBucket},
		// Codes, access tokens and logins of clients end by themselves; what has no life of its own stays.
		{Bucket: PeopleBucket, LimitMarkerTTL: time.Minute},
	}
	for _, cfg := range buckets {
		cfg.History, cfg.Storage, cfg.Replicas = 1, jetstream.FileStorage, layout.Replicas
		if _, err := boot.JS.CreateOrUpdateKeyValue(ctx, cfg); err != nil {
			return fmt.Errorf("bucket %s: %w", cfg.Bucket, err)
		}
	}
	for _, h := range schemas.Hearings() {
		if h.View {
			continue // made when its service asks to rewind it
		}
		if _, err := boot.JS.CreateOrUpdateConsumer(ctx, string(h.Stream), durableConfig(h)); err != nil {
			return fmt.Errorf("durable %s: %w", h.Name, err)
		}
	}
	return nil
}

func durableConfig(h schemas.Hearing) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: h.Name, FilterSubject: h.Filter, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: AckWait, MaxAckPending: MaxAckPending, DeliverPolicy: jetstream.DeliverAllPolicy, MaxDeliver: -1,
	}
}

func unique(in []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, s := range in {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
