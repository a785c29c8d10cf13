package postgres

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/execwarden/execwarden/libs/problem"
)

// Server is a Postgres that can be reached by its URL.
type Server struct {
	url string

	// The rest is for a private cluster; home is nil for one that somebody else runs.
	home    *home
	binDir  string
	cfg     Config
	log     *slog.Logger
	closing chan struct{} // closed by the first Stop
	closed  chan struct{} // closed when the supervisor has ended; its result is in err
	once    sync.Once
	stopCtx context.Context // of the first Stop; set before closing is closed
	err     error
}

// Start returns a server that answers. ctx bounds the start only: the server runs until Stop. The codes of its
// errors are problem.Invalid (the configuration must change), problem.Conflict (another process owns the data
// directory), problem.NotFound and problem.Unavailable.
func Start(ctx context.Context, cfg Config, log *slog.Logger) (*Server, error) {
	cfg = cfg.withDefaults()
	if cfg.URL != "" {
		return external(ctx, cfg)
	}
	h, err := openHome(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{home: h, cfg: cfg, log: log, closing: make(chan struct{}), closed: make(chan struct{})}
	p, err := s.begin(ctx)
	if err != nil {
		h.close()
		return nil, err
	}
	go s.supervise(p)
	return s, nil
}

func external(ctx context.Context, cfg Config) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, cfg.URL)
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the configured database does not answer")
	}
	_ = conn.Close(ctx) // it answered; how it says goodbye does not matter
	return &Server{url: cfg.URL}, nil
}

// URL is what clients connect to. It stays the same when the server is started again.
func (s *Server) URL() string { return s.url }

// begin brings up the first server on the cluster, making the cluster if there is none.
func (s *Server) begin(ctx context.Context) (*postmaster, error) {
	var err error
	if s.binDir, err = s.binaries(ctx); err != nil {
		return nil, err
	}
	if err := s.home.owner.checkReach(s.binDir); err != nil {
		return nil, err
	}
	if err := s.home.ensureCluster(ctx, s.binDir, s.log); err != nil {
		return nil, err
	}
	if err := s.home.stopOrphan(ctx, s.log); err != nil {
		return nil, err
	}
	p, err := s.boot(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.ensureDatabase(ctx); err != nil {
		return nil, s.abandon(p, err)
	}
	s.url = s.urlOf(s.cfg.Database)
	return p, nil
}

func (s *Server) binaries(ctx context.Context) (string, error) {
	if s.cfg.BinDir != "" {
		if !holdsServer(s.cfg.BinDir) {
			return "", problem.New(problem.Invalid, "%s does not hold the programs postgres and initdb", s.cfg.BinDir)
		}
		return s.cfg.BinDir, nil
	}
	dir, err := find(s.home.major())
	if err == nil || s.cfg.NoDownload {
		return dir, err
	}
	return s.home.fetch(ctx, s.cfg, s.log)
}

func (s *Server) urlOf(database string) string {
	query := url.Values{"host": {s.home.socket}, "port": {"5432"}, "user": {superuser}}.Encode()
	// A plus means a space in a form, and itself to Postgres clients. Encode writes a real one as %2B.
	u := url.URL{Scheme: "postgres", Path: "/" + database, RawQuery: strings.ReplaceAll(query, "+", "%20")}
	return u.String()
}

// boot launches the server and waits until it answers. It tries again only while what is left of a killed server is
// still going away.
func (s *Server) boot(ctx context.Context) (*postmaster, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	for {
		p, err := launch(s.home, s.binDir, s.cfg.Settings, s.log)
		if err != nil {
			return nil, problem.Wrap(err, problem.Unavailable, "cannot run %s/postgres", s.binDir)
		}
		if err = s.awaitReady(ctx, p); err == nil {
			return p, nil
		}
		select {
		case <-p.exited:
		default: // it runs but does not answer
			return nil, s.abandon(p, err)
		}
		if why := p.log.last(); !strings.Contains(why, "pre-existing shared memory") && !strings.Contains(why, "lock file") {
			return nil, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// abandon stops a server that is of no use because of err. The start's context may be over by now.
func (s *Server) abandon(p *postmaster, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	if stopErr := p.stop(ctx); stopErr != nil {
		s.log.Warn("the database server had to be stopped hard", "error", stopErr)
	}
	return err
}

func (s *Server) awaitReady(ctx context.Context, p *postmaster) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.urlOf("postgres"))
		if err == nil {
			_ = conn.Close(ctx)
			return nil
		}
		if refused := new(pgconn.PgError); errors.As(err, &refused) && refused.Code[:2] == "28" {
			return problem.Wrap(err, problem.Unavailable, "the database server does not let us in")
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return problem.New(problem.Unavailable, "the database server did not start: %s", p.log.last())
		case <-ctx.Done():
			return problem.Wrap(err, problem.Unavailable, "the database server does not answer: %s", p.log.last())
		}
	}
}

func (s *Server) ensureDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.urlOf("postgres"))
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "the database server does not answer")
	}
	defer conn.Close(ctx)
	var exists bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, s.cfg.Database).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{s.cfg.Database}.Sanitize())
	}
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "cannot create the database %s", s.cfg.Database)
	}
	return nil
}
