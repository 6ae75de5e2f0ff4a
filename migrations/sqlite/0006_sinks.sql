-- More than one daemon: who leads, who stands before it, how far the journal was passed on, which
-- commands came in.

-- How far each consumer of the journal has been served.
CREATE TABLE sinks (
    sink TEXT    PRIMARY KEY,
    seq  INTEGER NOT NULL CHECK (seq >= 0)
) STRICT;

-- Commands that were received, so that a repeated delivery is known.
CREATE TABLE commands (
    command TEXT    PRIMARY KEY,
    kind    TEXT    NOT NULL,
    at_us   INTEGER NOT NULL,
    outcome TEXT    NOT NULL
) STRICT;
CREATE INDEX commands_by_age ON commands (at_us);

-- One row. `epoch` counts the reigns; a write of another epoch than this is refused.
CREATE TABLE leader (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    epoch       INTEGER NOT NULL CHECK (epoch >= 0),
    name        TEXT    NOT NULL,
    url         TEXT    NOT NULL,
    since_us    INTEGER NOT NULL,
    backend_pid INTEGER NOT NULL
) STRICT;
INSERT INTO leader (id, epoch, name, url, since_us, backend_pid) VALUES (1, 0, '', '', 0, 0);

CREATE TABLE leader_seen (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    seen_us INTEGER NOT NULL
) STRICT;
INSERT INTO leader_seen (id, seen_us) VALUES (1, 0);

CREATE TABLE gateways (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT    NOT NULL UNIQUE
) STRICT;
