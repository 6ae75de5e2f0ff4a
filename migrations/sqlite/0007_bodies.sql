-- Large bodies of steps, compressed: prompts, outputs, token ids. No foreign key: a body may come
-- before the journal has its step. `object` names the object that holds it, if it is not here.

CREATE TABLE bodies (
    program    TEXT    NOT NULL,
    step       INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    at_us      INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    object     TEXT,
    body       BLOB    NOT NULL,
    PRIMARY KEY (program, step, kind)
) STRICT;
CREATE INDEX bodies_by_age ON bodies (at_us);
