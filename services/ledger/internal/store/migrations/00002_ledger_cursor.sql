-- How far each stream has been taken in. The row is the lock of the stream's one writer.

-- +goose Up
CREATE TABLE ledger_cursor (
    stream      text COLLATE "C" PRIMARY KEY,
    incarnation text   NOT NULL, -- of the stream: sequences mean nothing in another one
    first_seq   bigint NOT NULL, -- where the ledger began; earlier events had gone by then
    last_seq    bigint NOT NULL
) WITH (fillfactor = 50);
