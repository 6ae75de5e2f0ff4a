-- Actions that treadle runs: what they are, what they were given and how they ended. `spec`, `grants`
-- and `outcome` are JSON. What to run and the output are bodies.

CREATE TABLE actions (
    action          INTEGER NOT NULL PRIMARY KEY,
    job             TEXT    NOT NULL,
    program         TEXT,
    kind            TEXT    NOT NULL,
    status          TEXT    NOT NULL,
    attempts        INTEGER NOT NULL,
    spec            TEXT    NOT NULL,
    grants          TEXT,
    outcome         TEXT,
    output          TEXT,
    submitted_at_us INTEGER NOT NULL,
    granted_at_us   INTEGER,
    began_at_us     INTEGER,
    ended_at_us     INTEGER
) STRICT;
CREATE INDEX actions_by_job ON actions (job, action);
CREATE INDEX actions_by_program ON actions (program, action);
CREATE INDEX actions_by_status ON actions (status, action);

-- Services that actions may ask for. `spec` is JSON.

CREATE TABLE services (
    service        TEXT    NOT NULL PRIMARY KEY,
    tenant         TEXT    NOT NULL,
    spec           TEXT    NOT NULL,
    load_us        INTEGER NOT NULL,
    declared_at_us INTEGER NOT NULL
) STRICT;
