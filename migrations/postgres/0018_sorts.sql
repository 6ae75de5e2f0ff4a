-- Pages of programs in every order: each has an index of those that have ended, which a program is
-- written to once, at its end; columns that change with every step would cost every step a write in
-- each. Those that are live are few, and sorted. By last change `programs_ended` is read.
--
-- Pages by worker have one that a program is written to while it is placed.

CREATE INDEX programs_by_steps ON programs (steps, program) WHERE ended IS NOT NULL;
CREATE INDEX programs_by_context ON programs (context_tokens, program) WHERE ended IS NOT NULL;
CREATE INDEX programs_by_tokens ON programs (tokens_total, program) WHERE ended IS NOT NULL;
-- Those without a reward come last, in either order.
CREATE INDEX programs_by_reward_falling
    ON programs (COALESCE(reward_millionths, -4611686018427387904), program) WHERE ended IS NOT NULL;
CREATE INDEX programs_by_reward_rising
    ON programs (COALESCE(reward_millionths, 4611686018427387904), program) WHERE ended IS NOT NULL;
CREATE INDEX programs_by_worker ON programs (worker, created_at_us, program) WHERE worker IS NOT NULL;
