-- Projections of the journal that are asked for by name: programs, their steps, the workers.

CREATE TABLE programs (
    tenant         TEXT    NOT NULL DEFAULT 'default',
    program        TEXT    NOT NULL,
    job            TEXT    NOT NULL,
    status         TEXT    NOT NULL,
    phase          TEXT    NOT NULL,
    worker         TEXT,
    context_tokens INTEGER NOT NULL,
    steps          INTEGER NOT NULL,
    tokens_total   INTEGER NOT NULL,
    created_at_us  INTEGER NOT NULL,
    updated_at_us  INTEGER NOT NULL,
    ended          TEXT,
    PRIMARY KEY (tenant, program)
) STRICT;
CREATE INDEX programs_by_age ON programs (created_at_us, program);
CREATE INDEX programs_by_job ON programs (job, created_at_us, program);
CREATE INDEX programs_ended ON programs (updated_at_us) WHERE ended IS NOT NULL;

CREATE TABLE steps (
    tenant            TEXT    NOT NULL DEFAULT 'default',
    program           TEXT    NOT NULL,
    step              INTEGER NOT NULL,
    worker            TEXT,
    arrived_at_us     INTEGER NOT NULL,
    dispatched_at_us  INTEGER,
    first_token_at_us INTEGER,
    finished_at_us    INTEGER,
    prompt_tokens     INTEGER NOT NULL,
    output_tokens     INTEGER NOT NULL,
    cached_tokens     INTEGER,
    outcome           TEXT    NOT NULL,
    waited_us         INTEGER NOT NULL,
    cause             TEXT,
    PRIMARY KEY (tenant, program, step),
    FOREIGN KEY (tenant, program) REFERENCES programs (tenant, program) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    tenant          TEXT    NOT NULL DEFAULT 'default',
    worker          TEXT    NOT NULL,
    url             TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    status          TEXT    NOT NULL,
    capacity_tokens INTEGER,
    used_tokens     INTEGER NOT NULL,
    added_at_us     INTEGER NOT NULL,
    updated_at_us   INTEGER NOT NULL,
    PRIMARY KEY (tenant, worker)
) STRICT;
