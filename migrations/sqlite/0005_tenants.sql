-- Who may do what: tenants, their tokens, the plugins that are theirs, and what was changed by whom.

CREATE TABLE tenants (
    tenant        TEXT    PRIMARY KEY,
    created_at_us INTEGER NOT NULL,
    limits        TEXT    NOT NULL
) STRICT;

-- A secret is stored by its SHA-256 alone. After a rotation the secret before it stays good for a
-- while. `tenant` is `*` for a token of the whole daemon. Rows stay after a revocation.
CREATE TABLE api_tokens (
    token             TEXT    PRIMARY KEY,
    tenant            TEXT    NOT NULL,
    name              TEXT    NOT NULL,
    scope             TEXT    NOT NULL,
    hash              BLOB    NOT NULL UNIQUE,
    previous_hash     BLOB,
    previous_until_us INTEGER,
    created_at_us     INTEGER NOT NULL,
    expires_at_us     INTEGER,
    revoked_at_us     INTEGER,
    last_used_at_us   INTEGER
) STRICT;

-- Equal bytes are stored once, whoever uploads them; each tenant sees those that it uploaded.
CREATE TABLE plugin_owners (
    tenant   TEXT    NOT NULL,
    digest   TEXT    NOT NULL,
    since_us INTEGER NOT NULL,
    PRIMARY KEY (tenant, digest)
) STRICT, WITHOUT ROWID;
INSERT INTO plugin_owners (tenant, digest, since_us)
    SELECT tenant, digest, uploaded_at_us FROM plugins;

-- Rows are only ever added; the oldest go once there are more than the configuration keeps.
CREATE TABLE audit (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at_us      INTEGER NOT NULL,
    tenant     TEXT    NOT NULL,
    who        TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    target     TEXT    NOT NULL,
    before     TEXT    NOT NULL,
    after      TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    address    TEXT
) STRICT;
CREATE INDEX audit_by_tenant ON audit (tenant, id);
CREATE TRIGGER audit_rows_never_change BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'rows of the audit log never change');
END;
