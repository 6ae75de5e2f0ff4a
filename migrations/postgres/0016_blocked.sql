-- Time in which a program waited for programs that it had started, in microseconds; unknown of those
-- that ended before this was kept.

ALTER TABLE programs ADD COLUMN blocked_us BIGINT;
