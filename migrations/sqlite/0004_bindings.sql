-- A binding has roles: who answers, who answered before, who is on trial, who is compared. What a
-- policy has stored goes with its role, so that a restart loses nothing of it.

CREATE TABLE binding_roles (
    tenant    TEXT    NOT NULL DEFAULT 'default',
    job       TEXT    NOT NULL,
    world     TEXT    NOT NULL,
    role      TEXT    NOT NULL,
    digest    TEXT    NOT NULL,
    config    TEXT    NOT NULL,
    share_ppm INTEGER NOT NULL,
    since_us  INTEGER NOT NULL,
    PRIMARY KEY (tenant, job, world, role)
) STRICT;
INSERT INTO binding_roles (tenant, job, world, role, digest, config, share_ppm, since_us)
    SELECT tenant, job, world, 'active', digest, config, 0, since_us FROM bindings;
DROP TABLE bindings;
ALTER TABLE binding_roles RENAME TO bindings;

CREATE TABLE policy_states (
    tenant      TEXT    NOT NULL DEFAULT 'default',
    job         TEXT    NOT NULL,
    world       TEXT    NOT NULL,
    entries     BLOB    NOT NULL,
    snapshot    BLOB    NOT NULL,
    saved_at_us INTEGER NOT NULL,
    PRIMARY KEY (tenant, job, world)
) STRICT;

-- Whose signature an upload bore, if any.
ALTER TABLE plugins ADD COLUMN signed_by TEXT;
