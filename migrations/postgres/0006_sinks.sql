-- More than one daemon: who leads, who stands before it, how far the journal was passed on, which
-- commands came in.

-- How far each consumer of the journal has been served.
CREATE TABLE sinks (
    sink TEXT   COLLATE "C" PRIMARY KEY,
    seq  BIGINT NOT NULL CHECK (seq >= 0)
) WITH (fillfactor = 50);

-- Commands that were received, so that a repeated delivery is known.
CREATE TABLE commands (
    command TEXT   COLLATE "C" PRIMARY KEY,
    kind    TEXT   COLLATE "C" NOT NULL,
    at_us   BIGINT NOT NULL,
    outcome TEXT   COLLATE "C" NOT NULL
);
CREATE INDEX commands_by_age ON commands (at_us);

-- One row. `epoch` counts the reigns; a write of another epoch than this is refused.
CREATE TABLE leader (
    id          BIGINT PRIMARY KEY CHECK (id = 1),
    epoch       BIGINT NOT NULL CHECK (epoch >= 0),
    name        TEXT   COLLATE "C" NOT NULL,
    url         TEXT   COLLATE "C" NOT NULL,
    since_us    BIGINT NOT NULL,
    backend_pid BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO leader (id, epoch, name, url, since_us, backend_pid) VALUES (1, 0, '', '', 0, 0);

-- Apart from `leader`, whose row every write locks: a sign of life waits for no write.
CREATE TABLE leader_seen (
    id      BIGINT PRIMARY KEY CHECK (id = 1),
    seen_us BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO leader_seen (id, seen_us) VALUES (1, 0);

CREATE TABLE gateways (
    id   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name TEXT   COLLATE "C" NOT NULL UNIQUE
);
