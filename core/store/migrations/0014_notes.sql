-- Notes are apart by bot, and those from a private talk stay out of groups.

CREATE TABLE notes_apart (
    seq INTEGER PRIMARY KEY,
    -- Empty for those that were kept before bots were told apart: any bot finds them, in private.
    bot TEXT NOT NULL,
    -- As adapter:sender.
    person TEXT NOT NULL,
    text TEXT NOT NULL,
    -- 1 when nobody else was there.
    private INTEGER NOT NULL,
    -- By the wall clock.
    at REAL NOT NULL,
    UNIQUE (person, bot, text)
);
INSERT INTO notes_apart (seq, bot, person, text, private, at) SELECT seq, '', person, text, 1, at FROM notes;
DROP TABLE notes;
ALTER TABLE notes_apart RENAME TO notes;
