-- One row for each event, kept for ever: proofs stay valid when a body is gone.

-- +goose Up
CREATE TABLE ledger_leaf (
    tenant    text COLLATE "C" NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    tseq      bigint NOT NULL, -- position in the tree of (tenant, stream), from 0
    event_id  text COLLATE "C",
    sseq      bigint NOT NULL, -- position in the stream
    leaf_hash bytea  NOT NULL,
    PRIMARY KEY (tenant, stream, tseq)
);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_leaf
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse();
