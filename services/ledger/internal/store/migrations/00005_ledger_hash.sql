-- Complete subtrees of every eighth level (256 leaves, 65536, ...). The levels between are computed from at most 128
-- hashes when a proof needs them, which saves a row for each leaf. Level 0 is ledger_leaf.

-- +goose Up
CREATE TABLE ledger_hash (
    tenant text COLLATE "C" NOT NULL,
    stream text COLLATE "C" NOT NULL,
    level  smallint NOT NULL,
    n      bigint   NOT NULL, -- covers the leaves [n << level, (n+1) << level)
    hash   bytea    NOT NULL,
    PRIMARY KEY (tenant, stream, level, n)
);
