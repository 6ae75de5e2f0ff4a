-- The journal: what the core saw, in order, and why it decided what it decided.

-- One row. `last_seq` outlives pruning: the newest event may be gone, its number is not reused.
CREATE TABLE journal_head (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    last_seq INTEGER NOT NULL CHECK (last_seq >= 0)
) STRICT;
INSERT INTO journal_head (id, last_seq) VALUES (1, 0);

CREATE TABLE events (
    seq     INTEGER PRIMARY KEY,
    tenant  TEXT    NOT NULL DEFAULT 'default',
    at_us   INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    job     TEXT    NOT NULL,
    program TEXT,
    body    TEXT    NOT NULL
) STRICT;
CREATE INDEX events_by_program ON events (program, seq) WHERE program IS NOT NULL;
CREATE INDEX events_by_kind ON events (kind, seq);

-- One event may lead to several decisions, so `seq` alone is no key.
CREATE TABLE decisions (
    id      INTEGER PRIMARY KEY,
    tenant  TEXT    NOT NULL DEFAULT 'default',
    seq     INTEGER NOT NULL,
    at_us   INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    program TEXT,
    worker  TEXT,
    policy  TEXT    NOT NULL,
    why     TEXT    NOT NULL
) STRICT;
CREATE INDEX decisions_by_seq ON decisions (seq);
CREATE INDEX decisions_by_program ON decisions (program, seq) WHERE program IS NOT NULL;

CREATE TABLE snapshots (
    seq         INTEGER PRIMARY KEY,
    saved_at_us INTEGER NOT NULL,
    state       BLOB    NOT NULL
) STRICT;
