-- A read model: one row for each run, kept up to date by ingest. It can be made anew from ledger_body.

-- +goose Up
CREATE TABLE ledger_run (
    tenant     text COLLATE "C" NOT NULL,
    stream     text COLLATE "C" NOT NULL,
    run        text COLLATE "C" NOT NULL,
    first_seq  bigint NOT NULL,
    last_seq   bigint NOT NULL,
    events     bigint NOT NULL,
    actor      text COLLATE "C", -- of the first event
    state      text COLLATE "C", -- kind of the last event about the run itself
    first_time timestamptz,
    last_time  timestamptz,
    PRIMARY KEY (tenant, stream, run)
) WITH (fillfactor = 70);

CREATE INDEX ledger_run_newest ON ledger_run (tenant, stream, first_seq);
