-- What was recorded: the bytes as the producer wrote them, and what they say, for searching.

-- +goose Up
CREATE TABLE ledger_body (
    tenant      text COLLATE "C" NOT NULL,
    stream      text COLLATE "C" NOT NULL,
    sseq        bigint NOT NULL,
    tseq        bigint NOT NULL,
    -- From here to call: what was read from the bytes. All null when they could not be decoded.
    event_id    text COLLATE "C",
    type        text COLLATE "C",
    noun        text COLLATE "C",
    key         text COLLATE "C",
    kind        text COLLATE "C",
    time        timestamptz,
    actor       text COLLATE "C",
    run         text COLLATE "C",
    call        text COLLATE "C",
    subject     text COLLATE "C" NOT NULL,
    raw         bytea NOT NULL,
    doc         jsonb, -- null when Postgres cannot hold it: no JSON, a \u0000, a lone surrogate
    stored_at   timestamptz NOT NULL, -- in the stream
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, stream, sseq)
);

CREATE INDEX ledger_body_event ON ledger_body (tenant, event_id) WHERE event_id IS NOT NULL;
CREATE INDEX ledger_body_run ON ledger_body (tenant, run, stream, sseq) WHERE run IS NOT NULL;
CREATE INDEX ledger_body_key ON ledger_body (tenant, noun, key, stream, sseq) WHERE key IS NOT NULL;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_body
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse();
