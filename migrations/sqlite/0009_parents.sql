-- The program that started a program, and those that one started. A program has few of them, and none
-- changes its parent: the index costs a write where there is one.

ALTER TABLE programs ADD COLUMN parent TEXT;
CREATE INDEX programs_by_parent ON programs (parent, created_at_us, program) WHERE parent IS NOT NULL;
