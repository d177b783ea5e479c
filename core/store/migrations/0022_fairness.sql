-- Who sent a message, as platform:ID, so that the waiting messages of one person can be counted.
ALTER TABLE inbox ADD COLUMN sender TEXT NOT NULL DEFAULT '';
CREATE INDEX inbox_waiting_of_sender ON inbox (sender) WHERE state = 'waiting' AND sender <> '';
