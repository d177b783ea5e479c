-- The spine: what came in, what ran, what we owe. Times are steady seconds (core/clock.py).

-- Ties steady time to this boot of the machine.
CREATE TABLE epoch (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    boot TEXT NOT NULL,
    clock_offset REAL NOT NULL,
    latest REAL NOT NULL
);

CREATE TABLE conversations (
    id TEXT PRIMARY KEY,
    generation INTEGER NOT NULL DEFAULT 1,
    -- The newest checkpoint of the generation's last run.
    checkpoint BLOB
);

-- One row for everything that came in; a message's row is its run.
CREATE TABLE inbox (
    seq INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    adapter TEXT NOT NULL,
    account TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    conversation TEXT NOT NULL,
    generation INTEGER NOT NULL DEFAULT 1,
    album TEXT NOT NULL DEFAULT '',
    -- The run that an album's later row became part of.
    joined TEXT,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'done', 'closed', 'joined')),
    message BLOB NOT NULL,
    digest TEXT NOT NULL DEFAULT '',
    accepted REAL NOT NULL,
    -- Not claimed before; only an album waits.
    ready REAL NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT 0,
    stop_asked TEXT,
    checkpoint BLOB,
    -- The journal's last number when the checkpoint was taken.
    checkpoint_after INTEGER NOT NULL DEFAULT 0,
    view BLOB,
    outcome TEXT CHECK (outcome IN ('completed', 'halted', 'failed', 'cancelled')),
    reason TEXT NOT NULL DEFAULT '',
    usage BLOB,
    ended REAL,
    UNIQUE (adapter, account, key),
    CHECK ((state = 'done') = (outcome IS NOT NULL))
);
CREATE INDEX inbox_running ON inbox (state, seq) WHERE state = 'running';
CREATE INDEX inbox_joined ON inbox (joined) WHERE joined IS NOT NULL;
CREATE INDEX inbox_waiting ON inbox (conversation, seq) WHERE state = 'waiting';
CREATE UNIQUE INDEX one_live_run_per_conversation ON inbox (conversation) WHERE state = 'running';

CREATE TABLE history (
    seq INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL,
    generation INTEGER NOT NULL,
    author TEXT NOT NULL CHECK (author IN ('person', 'bot', 'notice')),
    text TEXT NOT NULL,
    run TEXT NOT NULL DEFAULT '',
    at REAL NOT NULL
);
CREATE INDEX history_of_conversation ON history (conversation, generation, seq);

CREATE TABLE journal (
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    event BLOB NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX one_end_per_run ON journal (run) WHERE kind = 'ended';

CREATE TABLE deliveries (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    lane TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('final', 'reply', 'notice', 'opening')),
    run TEXT,
    -- What made us owe it: a notice's name, a task, a command line.
    cause TEXT NOT NULL DEFAULT '',
    target BLOB NOT NULL,
    body BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'held', 'doubtful', 'delivered', 'dead')),
    reason TEXT NOT NULL DEFAULT '',
    created REAL NOT NULL,
    closed REAL,
    -- A loss that the chat has not been told of yet.
    untold INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX one_final_per_run ON deliveries (run) WHERE kind = 'final';
CREATE INDEX openings_of_run ON deliveries (run) WHERE kind = 'opening';
CREATE INDEX deliveries_waiting ON deliveries (lane, seq) WHERE state = 'waiting';
CREATE INDEX deliveries_open ON deliveries (state, created) WHERE state <> 'delivered';
CREATE INDEX deliveries_open_in_lane ON deliveries (lane, state) WHERE state <> 'delivered';
CREATE INDEX losses_untold ON deliveries (lane) WHERE untold = 1;
CREATE INDEX notices_of_lane ON deliveries (lane, cause, created) WHERE kind = 'notice';

CREATE TABLE parts (
    delivery TEXT NOT NULL,
    -- 0 is an anchor that was sent for a later part; the text begins at 1.
    position INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('plain', 'opening', 'anchor')),
    key TEXT NOT NULL,
    body BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'sending', 'doubtful', 'delivered', 'dead')),
    -- Attempts that reached the wire; what was never sent counts nothing.
    attempts INTEGER NOT NULL DEFAULT 0,
    misses INTEGER NOT NULL DEFAULT 0,
    not_before REAL NOT NULL DEFAULT 0,
    -- First attempt under this key, steady and by the wall clock.
    tried REAL,
    since REAL NOT NULL DEFAULT 0,
    marked INTEGER NOT NULL DEFAULT 0,
    view BLOB,
    receipt BLOB,
    PRIMARY KEY (delivery, position)
) WITHOUT ROWID;
CREATE INDEX parts_in_flight ON parts (state) WHERE state = 'sending';

-- A platform's pause, by budget; it outlives the process that met it.
CREATE TABLE pauses (
    budget TEXT PRIMARY KEY,
    until REAL NOT NULL
);

CREATE TABLE aliases (
    adapter TEXT NOT NULL,
    account TEXT NOT NULL,
    chat TEXT NOT NULL,
    moved_to TEXT NOT NULL,
    PRIMARY KEY (adapter, account, chat)
);

CREATE TABLE notebook (
    adapter TEXT NOT NULL,
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (adapter, account, name)
);

CREATE TABLE access (
    id TEXT PRIMARY KEY,
    at REAL NOT NULL
);

CREATE TABLE tasks (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    argument TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'succeeded', 'failed', 'cancelled', 'lost')),
    reason TEXT NOT NULL DEFAULT '',
    run TEXT NOT NULL,
    bot TEXT NOT NULL,
    conversation BLOB NOT NULL,
    sender BLOB NOT NULL,
    target BLOB NOT NULL,
    due REAL NOT NULL,
    created REAL NOT NULL,
    ended REAL
);
CREATE INDEX tasks_open ON tasks (due) WHERE state IN ('waiting', 'running');
