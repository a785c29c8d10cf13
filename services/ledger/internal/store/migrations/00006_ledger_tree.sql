-- The head of each tree: all that is needed to append to it.

-- +goose Up
CREATE TABLE ledger_tree (
    tenant       text COLLATE "C" NOT NULL,
    stream       text COLLATE "C" NOT NULL,
    size         bigint NOT NULL,
    peaks        bytea  NOT NULL, -- 32 bytes for each bit set in size, the largest subtree first
    checkpointed bigint NOT NULL DEFAULT 0, -- size of the last saved checkpoint
    PRIMARY KEY (tenant, stream)
) WITH (fillfactor = 50);
