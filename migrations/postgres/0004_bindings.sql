-- Which job uses which policies, by role; and what they have stored, so that a restart loses
-- nothing of it.

-- No foreign key on `digest`: a binding may also name a policy that is built in.
CREATE TABLE bindings (
    tenant    TEXT   COLLATE "C" NOT NULL DEFAULT 'default',
    job       TEXT   COLLATE "C" NOT NULL,
    world     TEXT   COLLATE "C" NOT NULL,
    role      TEXT   COLLATE "C" NOT NULL,
    digest    TEXT   COLLATE "C" NOT NULL,
    config    TEXT   COLLATE "C" NOT NULL,
    share_ppm BIGINT NOT NULL,
    since_us  BIGINT NOT NULL,
    PRIMARY KEY (tenant, job, world, role)
);

CREATE TABLE policy_states (
    tenant      TEXT   COLLATE "C" NOT NULL DEFAULT 'default',
    job         TEXT   COLLATE "C" NOT NULL,
    world       TEXT   COLLATE "C" NOT NULL,
    entries     BYTEA  NOT NULL,
    snapshot    BYTEA  NOT NULL,
    saved_at_us BIGINT NOT NULL,
    PRIMARY KEY (tenant, job, world)
);

-- Whose signature an upload bore, if any.
ALTER TABLE plugins ADD COLUMN signed_by TEXT COLLATE "C";
