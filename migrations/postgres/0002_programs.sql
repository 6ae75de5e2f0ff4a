-- Projections of the journal that are asked for by name: programs, their steps, the workers.

CREATE TABLE programs (
    tenant         TEXT   COLLATE "C" NOT NULL DEFAULT 'default',
    program        TEXT   COLLATE "C" NOT NULL,
    job            TEXT   COLLATE "C" NOT NULL,
    status         TEXT   COLLATE "C" NOT NULL,
    phase          TEXT   COLLATE "C" NOT NULL,
    worker         TEXT   COLLATE "C",
    context_tokens BIGINT NOT NULL,
    steps          BIGINT NOT NULL,
    tokens_total   BIGINT NOT NULL,
    created_at_us  BIGINT NOT NULL,
    updated_at_us  BIGINT NOT NULL,
    ended          TEXT   COLLATE "C",
    PRIMARY KEY (tenant, program)
);
CREATE INDEX programs_by_age ON programs (created_at_us, program);
CREATE INDEX programs_by_job ON programs (job, created_at_us, program);
CREATE INDEX programs_ended ON programs (updated_at_us) WHERE ended IS NOT NULL;

CREATE TABLE steps (
    tenant            TEXT   COLLATE "C" NOT NULL DEFAULT 'default',
    program           TEXT   COLLATE "C" NOT NULL,
    step              BIGINT NOT NULL,
    worker            TEXT   COLLATE "C",
    arrived_at_us     BIGINT NOT NULL,
    dispatched_at_us  BIGINT,
    first_token_at_us BIGINT,
    finished_at_us    BIGINT,
    prompt_tokens     BIGINT NOT NULL,
    output_tokens     BIGINT NOT NULL,
    cached_tokens     BIGINT,
    outcome           TEXT   COLLATE "C" NOT NULL,
    waited_us         BIGINT NOT NULL,
    cause             TEXT   COLLATE "C",
    PRIMARY KEY (tenant, program, step),
    FOREIGN KEY (tenant, program) REFERENCES programs (tenant, program) ON DELETE CASCADE
) WITH (fillfactor = 80);

CREATE TABLE workers (
    tenant          TEXT   COLLATE "C" NOT NULL DEFAULT 'default',
    worker          TEXT   COLLATE "C" NOT NULL,
    url             TEXT   COLLATE "C" NOT NULL,
    kind            TEXT   COLLATE "C" NOT NULL,
    status          TEXT   COLLATE "C" NOT NULL,
    capacity_tokens BIGINT,
    used_tokens     BIGINT NOT NULL,
    added_at_us     BIGINT NOT NULL,
    updated_at_us   BIGINT NOT NULL,
    PRIMARY KEY (tenant, worker)
) WITH (fillfactor = 50);
