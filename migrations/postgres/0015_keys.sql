-- Numbers that only this store and its daemons know, by what they are for: keys of hashes that must
-- stay the same after a restart. In hexadecimal digits.

CREATE TABLE keys (
    name  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value TEXT COLLATE "C" NOT NULL
);
