-- The reward of a program, in millionths, as its client reported it. It has no index: programs are
-- sorted by it within what other columns leave.

ALTER TABLE programs ADD COLUMN reward_millionths BIGINT;
