-- Who may do what: tenants, their tokens, the plugins that are theirs, and what was changed by whom.

CREATE TABLE tenants (
    tenant        TEXT   COLLATE "C" PRIMARY KEY,
    created_at_us BIGINT NOT NULL,
    limits        TEXT   COLLATE "C" NOT NULL
);

-- A secret is stored by its SHA-256 alone. After a rotation the secret before it stays good for a
-- while. `tenant` is `*` for a token of the whole daemon. Rows stay after a revocation.
CREATE TABLE api_tokens (
    token             TEXT   COLLATE "C" PRIMARY KEY,
    tenant            TEXT   COLLATE "C" NOT NULL,
    name              TEXT   COLLATE "C" NOT NULL,
    scope             TEXT   COLLATE "C" NOT NULL,
    hash              BYTEA  NOT NULL UNIQUE,
    previous_hash     BYTEA,
    previous_until_us BIGINT,
    created_at_us     BIGINT NOT NULL,
    expires_at_us     BIGINT,
    revoked_at_us     BIGINT,
    last_used_at_us   BIGINT
);

-- Equal bytes are stored once, whoever uploads them; each tenant sees those that it uploaded.
CREATE TABLE plugin_owners (
    tenant   TEXT   COLLATE "C" NOT NULL,
    digest   TEXT   COLLATE "C" NOT NULL,
    since_us BIGINT NOT NULL,
    PRIMARY KEY (tenant, digest)
);

-- Rows are only ever added; the oldest go once there are more than the configuration keeps.
CREATE TABLE audit (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_us      BIGINT NOT NULL,
    tenant     TEXT   COLLATE "C" NOT NULL,
    who        TEXT   COLLATE "C" NOT NULL,
    action     TEXT   COLLATE "C" NOT NULL,
    target     TEXT   COLLATE "C" NOT NULL,
    before     TEXT   COLLATE "C" NOT NULL,
    after      TEXT   COLLATE "C" NOT NULL,
    request_id TEXT   COLLATE "C" NOT NULL,
    address    TEXT   COLLATE "C"
);
CREATE INDEX audit_by_tenant ON audit (tenant, id);
CREATE FUNCTION audit_rows_never_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of the audit log never change';
END;
$$;
CREATE TRIGGER audit_rows_never_change BEFORE UPDATE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_rows_never_change();
