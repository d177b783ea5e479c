-- When a message was said, by its platform's own clock: what overtook it on the way does not run before it.

ALTER TABLE inbox ADD COLUMN said REAL NOT NULL DEFAULT 0;
