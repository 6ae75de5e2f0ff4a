-- The program that started a program, and those that one started. A program's parent does not change,
-- so that the index costs one write where there is one.

ALTER TABLE programs ADD COLUMN parent TEXT;
CREATE INDEX programs_by_parent ON programs (parent, created_at_us, program) WHERE parent IS NOT NULL;
