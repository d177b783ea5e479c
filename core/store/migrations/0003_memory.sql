-- What is remembered beside the history: choices, notes about people, what was used; and what was taken back.

CREATE TABLE preferences (
    conversation TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (conversation, name)
);

CREATE TABLE notes (
    seq INTEGER PRIMARY KEY,
    -- As adapter:sender.
    person TEXT NOT NULL,
    text TEXT NOT NULL,
    -- By the wall clock.
    at REAL NOT NULL,
    UNIQUE (person, text)
);

CREATE TABLE usage (
    conversation TEXT NOT NULL,
    -- The local date when the run ended, as 2025-06-15.
    day TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    -- US dollars; 0 where no price is known.
    cost REAL NOT NULL,
    runs INTEGER NOT NULL,
    PRIMARY KEY (conversation, day)
);

-- Readable, and no longer given to agents.
ALTER TABLE history ADD COLUMN undone INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inbox ADD COLUMN undone INTEGER NOT NULL DEFAULT 0;
