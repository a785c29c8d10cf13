-- Signed heads, all kept.

-- +goose Up
CREATE TABLE ledger_checkpoint (
    tenant      text COLLATE "C" NOT NULL,
    stream      text COLLATE "C" NOT NULL,
    size        bigint NOT NULL,
    root        bytea  NOT NULL,
    note        bytea  NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, stream, size)
);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_checkpoint
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse();
