-- Deliveries that somebody asked for from outside: by a key of theirs, so that asking twice owes once.

ALTER TABLE deliveries ADD COLUMN key TEXT NOT NULL DEFAULT '';
ALTER TABLE deliveries ADD COLUMN digest TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX deliveries_by_key ON deliveries (key) WHERE key <> '';

-- Conversations in order of their newest message, one page at a time.
CREATE INDEX messages_of_conversation ON inbox (conversation, seq) WHERE kind = 'message';
