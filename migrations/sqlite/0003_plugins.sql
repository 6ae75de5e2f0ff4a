-- Uploaded policies and which job uses which of them.

-- A digest is the name of its bytes, so a row never changes once it is here.
CREATE TABLE plugins (
    tenant         TEXT    NOT NULL DEFAULT 'default',
    digest         TEXT    NOT NULL,
    world          TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    version        TEXT    NOT NULL,
    summary        TEXT    NOT NULL,
    size_bytes     INTEGER NOT NULL,
    uploaded_at_us INTEGER NOT NULL,
    component      BLOB    NOT NULL,
    PRIMARY KEY (tenant, digest)
) STRICT;

-- No foreign key on `digest`: a binding may also name a policy that is built in.
CREATE TABLE bindings (
    tenant   TEXT    NOT NULL DEFAULT 'default',
    job      TEXT    NOT NULL,
    world    TEXT    NOT NULL,
    digest   TEXT    NOT NULL,
    config   TEXT    NOT NULL,
    since_us INTEGER NOT NULL,
    PRIMARY KEY (tenant, job, world)
) STRICT;
