-- The parts of an album are looked for by its name: some come long after the first was answered.
CREATE INDEX inbox_albums ON inbox (conversation, album) WHERE album <> '';
