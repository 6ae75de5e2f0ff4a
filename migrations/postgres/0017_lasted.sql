-- Programs by how long they lasted: those that have ended by an index that each is written to once, at
-- its end, and those that are live, which are few, sorted by their ages.

CREATE INDEX programs_by_lasted ON programs ((updated_at_us - created_at_us), program)
    WHERE ended IS NOT NULL;
CREATE INDEX programs_live ON programs (created_at_us, program) WHERE ended IS NULL;
