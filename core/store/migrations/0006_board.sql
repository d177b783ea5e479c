-- The board: cards, who works on them and what became of each attempt. Times are steady seconds.

CREATE TABLE cards (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    title TEXT NOT NULL,
    body TEXT NOT NULL DEFAULT '',
    assignee TEXT NOT NULL,
    priority INTEGER NOT NULL DEFAULT 0,
    workspace TEXT NOT NULL DEFAULT '',
    budget INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL
        CHECK (state IN ('triage', 'todo', 'ready', 'running', 'blocked', 'review', 'done', 'archived')),
    block TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    -- The last block in short, to know it again.
    blocked_before TEXT NOT NULL DEFAULT '',
    summary TEXT NOT NULL DEFAULT '',
    -- Of whoever may write as its worker; an older one may not.
    fence INTEGER NOT NULL DEFAULT 0,
    lease REAL,
    -- Not claimed before.
    due REAL NOT NULL DEFAULT 0,
    -- Attempts since it was last let go.
    tries INTEGER NOT NULL DEFAULT 0,
    made_by TEXT NOT NULL,
    sender BLOB,
    key TEXT NOT NULL DEFAULT '',
    created REAL NOT NULL,
    changed REAL NOT NULL,
    -- When it was done; its children wait for this.
    finished REAL,
    -- No card runs without a lease, and none is blocked without saying why.
    CHECK ((state = 'running') = (lease IS NOT NULL)),
    CHECK (state <> 'blocked' OR (block <> '' AND reason <> '')),
    CHECK (state <> 'done' OR finished IS NOT NULL)
);
CREATE INDEX cards_by_state ON cards (state, priority DESC, id);
CREATE INDEX cards_leased ON cards (lease) WHERE state = 'running';
-- Found only by a query that says so itself: `key <> ''`. The same goes for those below.
CREATE UNIQUE INDEX cards_by_key ON cards (key) WHERE key <> '';

CREATE TABLE card_links (
    parent INTEGER NOT NULL,
    child INTEGER NOT NULL,
    PRIMARY KEY (parent, child)
) WITHOUT ROWID;
CREATE INDEX card_links_of_child ON card_links (child);

CREATE TABLE card_remarks (
    seq INTEGER PRIMARY KEY,
    card INTEGER NOT NULL,
    by TEXT NOT NULL,
    text TEXT NOT NULL,
    at REAL NOT NULL,
    key TEXT NOT NULL DEFAULT ''
);
CREATE INDEX card_remarks_of_card ON card_remarks (card, seq);
CREATE UNIQUE INDEX card_remarks_by_key ON card_remarks (key) WHERE key <> '';

CREATE TABLE card_files (
    card INTEGER NOT NULL,
    place TEXT NOT NULL,
    name TEXT NOT NULL,
    by TEXT NOT NULL,
    PRIMARY KEY (card, place)
) WITHOUT ROWID;

CREATE TABLE card_attempts (
    card INTEGER NOT NULL,
    number INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    -- The run that works on it, or the process.
    run TEXT NOT NULL DEFAULT '',
    pid INTEGER,
    born TEXT NOT NULL DEFAULT '',
    started REAL NOT NULL,
    ended REAL,
    ending TEXT CHECK (ending IN ('complete', 'blocked', 'review', 'retry', 'archived')),
    kind TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    notes TEXT NOT NULL DEFAULT '',
    log TEXT NOT NULL DEFAULT '',
    -- It has begun something that must not be done twice.
    effect INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (card, number),
    CHECK ((ended IS NULL) = (ending IS NULL))
) WITHOUT ROWID;
CREATE UNIQUE INDEX one_open_attempt_per_card ON card_attempts (card) WHERE ended IS NULL;
CREATE UNIQUE INDEX card_attempts_by_run ON card_attempts (run) WHERE run <> '';

CREATE TABLE card_watchers (
    card INTEGER NOT NULL,
    -- The target as it is written.
    place TEXT NOT NULL,
    target BLOB NOT NULL,
    conversation TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (card, place)
) WITHOUT ROWID;

CREATE TABLE card_events (
    seq INTEGER PRIMARY KEY,
    card INTEGER NOT NULL,
    what TEXT NOT NULL,
    words TEXT NOT NULL,
    by TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX card_events_of_card ON card_events (card, seq);
