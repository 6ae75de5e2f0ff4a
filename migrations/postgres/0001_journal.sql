-- The journal: what the core saw, in order, and why it decided what it decided.
-- Text compares by its bytes (COLLATE "C"), as in the embedded store.

-- One row. `last_seq` outlives pruning: the newest event may be gone, its number is not reused.
CREATE TABLE journal_head (
    id       BIGINT PRIMARY KEY CHECK (id = 1),
    last_seq BIGINT NOT NULL CHECK (last_seq >= 0)
) WITH (fillfactor = 10);
INSERT INTO journal_head (id, last_seq) VALUES (1, 0);

-- Partitioned by number, which is the journal's own time: a reader that continues after an event
-- touches one partition, and retention drops whole ones. The store creates partitions ahead.
CREATE TABLE events (
    seq     BIGINT PRIMARY KEY,
    tenant  TEXT   COLLATE "C" NOT NULL DEFAULT 'default',
    at_us   BIGINT NOT NULL,
    kind    TEXT   COLLATE "C" NOT NULL,
    job     TEXT   COLLATE "C" NOT NULL,
    program TEXT   COLLATE "C",
    body    TEXT   COLLATE "C" NOT NULL
) PARTITION BY RANGE (seq);
CREATE INDEX events_by_program ON events (program, seq) WHERE program IS NOT NULL;
CREATE INDEX events_by_kind ON events (kind, seq);

-- One event may lead to several decisions, so `seq` alone is no key. Same partitions as events.
CREATE SEQUENCE decisions_id;
CREATE TABLE decisions (
    id      BIGINT NOT NULL DEFAULT nextval('decisions_id'),
    tenant  TEXT   COLLATE "C" NOT NULL DEFAULT 'default',
    seq     BIGINT NOT NULL,
    at_us   BIGINT NOT NULL,
    kind    TEXT   COLLATE "C" NOT NULL,
    program TEXT   COLLATE "C",
    worker  TEXT   COLLATE "C",
    policy  TEXT   COLLATE "C" NOT NULL,
    why     TEXT   COLLATE "C" NOT NULL,
    PRIMARY KEY (seq, id)
) PARTITION BY RANGE (seq);
CREATE INDEX decisions_by_program ON decisions (program, seq) WHERE program IS NOT NULL;
ALTER SEQUENCE decisions_id OWNED BY decisions.id;

CREATE TABLE snapshots (
    seq         BIGINT PRIMARY KEY,
    saved_at_us BIGINT NOT NULL,
    state       BYTEA  NOT NULL
);
