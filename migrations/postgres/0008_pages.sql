-- Pages that are filtered: of programs by status, of the journal by job. Columns of programs that
-- change with every step have no index: each would cost every step a write, and the programs of one
-- job or one status are few enough to be sorted.

CREATE INDEX programs_by_status ON programs (status, created_at_us, program);
CREATE INDEX events_by_job ON events (job, seq);
