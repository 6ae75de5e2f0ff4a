-- Pages of programs that are filtered by status. Columns that change with every step have no index:
-- each would cost every step a write, and the programs of one job or one status are few enough to be
-- sorted. Nor has the journal one by job: its pages are read in its own order.

CREATE INDEX programs_by_status ON programs (status, created_at_us, program);
