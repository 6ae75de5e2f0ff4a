-- Large bodies of steps, compressed: prompts, outputs, token ids. No foreign key: a body may come
-- before the journal has its step. `object` names the object that holds it, if it is not here.

CREATE TABLE bodies (
    program     TEXT   COLLATE "C" NOT NULL,
    step        BIGINT NOT NULL,
    kind        TEXT   COLLATE "C" NOT NULL,
    at_us       BIGINT NOT NULL,
    size_bytes  BIGINT NOT NULL,
    object      TEXT   COLLATE "C",
    body        BYTEA  NOT NULL,
    PRIMARY KEY (program, step, kind)
);
-- They are compressed already.
ALTER TABLE bodies ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX bodies_by_age ON bodies (at_us);
