-- Work that ends later and work that starts later: tasks with what they say, processes, schedules, homes.

ALTER TABLE tasks ADD COLUMN title TEXT NOT NULL DEFAULT '';
-- tell, wake or nothing.
ALTER TABLE tasks ADD COLUMN manner TEXT NOT NULL DEFAULT 'tell';
-- Whose it is, by the conversation's id.
ALTER TABLE tasks ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN started REAL;
ALTER TABLE tasks ADD COLUMN stop_asked TEXT;
ALTER TABLE tasks ADD COLUMN output TEXT NOT NULL DEFAULT '';
-- The run that does it.
ALTER TABLE tasks ADD COLUMN work TEXT NOT NULL DEFAULT '';
-- Whoever asks twice with the same key has begun it once.
ALTER TABLE tasks ADD COLUMN key TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX tasks_by_key ON tasks (key) WHERE key <> '';
CREATE INDEX tasks_of_owner ON tasks (owner, created);

CREATE TABLE processes (
    task TEXT PRIMARY KEY,
    -- The keeper's; none before it is known to live.
    pid INTEGER,
    -- When the system says that it was born: another process may get its number.
    born TEXT NOT NULL DEFAULT '',
    patterns BLOB NOT NULL,
    -- Up to this byte, what the patterns have found was told.
    scanned INTEGER NOT NULL DEFAULT 0,
    -- Notices of matches so far, and when the last one was.
    matched INTEGER NOT NULL DEFAULT 0,
    matched_at REAL NOT NULL DEFAULT 0
);

CREATE TABLE schedules (
    id TEXT PRIMARY KEY,
    plan BLOB NOT NULL,
    -- The conversation it was made in; empty for the command line.
    owner TEXT NOT NULL DEFAULT '',
    -- When it is due: by steady time where it counts from when it was said, else by the wall clock. None when it
    -- never runs again.
    next REAL,
    steady INTEGER NOT NULL DEFAULT 0,
    fired INTEGER NOT NULL DEFAULT 0,
    paused INTEGER NOT NULL DEFAULT 0,
    -- What was removed stays until its last run has been told.
    removed INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL
);
CREATE INDEX schedules_due ON schedules (next) WHERE next IS NOT NULL AND paused = 0 AND removed = 0;

-- Each instant at most once: the key is the proof.
CREATE TABLE firings (
    id TEXT NOT NULL UNIQUE,
    schedule TEXT NOT NULL,
    -- As the schedule's `next` was.
    instant REAL NOT NULL,
    -- The same by the wall clock, as are all times below.
    due REAL NOT NULL,
    -- As it was when this began: what is changed later is for later ones.
    plan BLOB NOT NULL,
    late INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'done', 'missed')),
    outcome TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    run TEXT NOT NULL DEFAULT '',
    started REAL,
    ended REAL,
    output TEXT NOT NULL DEFAULT '',
    -- What is owed for it, and what became of that; empty while that is open.
    delivery TEXT NOT NULL DEFAULT '',
    delivery_state TEXT NOT NULL DEFAULT '',
    delivery_reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (schedule, instant)
) WITHOUT ROWID;
CREATE INDEX firings_open ON firings (state) WHERE state IN ('waiting', 'running');
CREATE INDEX firings_owed ON firings (delivery) WHERE delivery <> '' AND delivery_state = '';
CREATE INDEX firings_in_time ON firings (schedule, due);

CREATE TABLE homes (
    adapter TEXT NOT NULL,
    account TEXT NOT NULL,
    target BLOB NOT NULL,
    PRIMARY KEY (adapter, account)
);
