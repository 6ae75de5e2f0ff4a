-- Steps that did not end as they should, newest first: few, so that the index costs most steps
-- nothing. Without it they are looked for among all.
CREATE INDEX steps_amiss ON steps (finished_at_us, program, step)
    WHERE outcome IN ('failed', 'cancelled', 'interrupted');
