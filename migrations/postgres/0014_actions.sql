-- Actions that treadle runs: what they are, what they were given and how they ended. `spec`, `grants`
-- and `outcome` are JSON. What to run and the output are bodies.

CREATE TABLE actions (
    action          BIGINT NOT NULL PRIMARY KEY,
    job             TEXT   COLLATE "C" NOT NULL,
    program         TEXT   COLLATE "C",
    kind            TEXT   COLLATE "C" NOT NULL,
    status          TEXT   COLLATE "C" NOT NULL,
    attempts        BIGINT NOT NULL,
    spec            TEXT   COLLATE "C" NOT NULL,
    grants          TEXT   COLLATE "C",
    outcome         TEXT   COLLATE "C",
    output          TEXT   COLLATE "C",
    submitted_at_us BIGINT NOT NULL,
    granted_at_us   BIGINT,
    began_at_us     BIGINT,
    ended_at_us     BIGINT
);
CREATE INDEX actions_by_job ON actions (job, action);
CREATE INDEX actions_by_program ON actions (program, action);
CREATE INDEX actions_by_status ON actions (status, action);

-- Services that actions may ask for. `spec` is JSON.

CREATE TABLE services (
    service        TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    tenant         TEXT   COLLATE "C" NOT NULL,
    spec           TEXT   COLLATE "C" NOT NULL,
    load_us        BIGINT NOT NULL,
    declared_at_us BIGINT NOT NULL
);
