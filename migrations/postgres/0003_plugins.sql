-- Uploaded policies.

-- A digest is the name of its bytes, so a row never changes once it is here.
CREATE TABLE plugins (
    tenant         TEXT   COLLATE "C" NOT NULL DEFAULT 'default',
    digest         TEXT   COLLATE "C" NOT NULL,
    world          TEXT   COLLATE "C" NOT NULL,
    name           TEXT   COLLATE "C" NOT NULL,
    version        TEXT   COLLATE "C" NOT NULL,
    summary        TEXT   COLLATE "C" NOT NULL,
    size_bytes     BIGINT NOT NULL,
    uploaded_at_us BIGINT NOT NULL,
    component      BYTEA  NOT NULL,
    PRIMARY KEY (tenant, digest)
);
