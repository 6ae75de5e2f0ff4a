-- What training runs store before an event names it: contents of groups, samples, and what clients
-- say of members. Kept until a checkpoint releases it. No foreign key: it comes before its event.

CREATE TABLE training_payloads (
    job        TEXT    COLLATE "C" NOT NULL,
    name       TEXT    COLLATE "C" NOT NULL,
    at_us      BIGINT  NOT NULL,
    size_bytes BIGINT  NOT NULL,
    body       BYTEA   NOT NULL,
    PRIMARY KEY (job, name)
);
