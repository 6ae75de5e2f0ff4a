-- What is kept of each tenant is summed up, whose programs begin with the same letters.

CREATE INDEX bodies_by_program ON bodies (program, at_us, size_bytes);
