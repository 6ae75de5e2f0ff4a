-- Figures of a daemon over time, for charts of what was before a page was opened: one row for each
-- moment, with what it showed then as JSON.

CREATE TABLE samples (
    at_us  INTEGER PRIMARY KEY,
    values_json TEXT NOT NULL
) STRICT;
