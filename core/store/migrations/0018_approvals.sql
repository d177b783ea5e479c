-- Approvals: questions whether a tool call may run, and approvals that hold for longer than once.

-- The question that a run waits for; the run is still the live one of its conversation, but no task works on it.
ALTER TABLE inbox ADD COLUMN asking TEXT NOT NULL DEFAULT '';
-- Whether the run goes on after a verdict: what it said before still stands.
ALTER TABLE inbox ADD COLUMN goes_on INTEGER NOT NULL DEFAULT 0;
CREATE INDEX inbox_at_work ON inbox (seq) WHERE state = 'running' AND asking = '';
CREATE INDEX inbox_asking ON inbox (seq) WHERE asking <> '';
CREATE INDEX inbox_asking_to_stop ON inbox (seq) WHERE stop_asked IS NOT NULL AND (asking <> '' OR goes_on = 1);

CREATE TABLE approvals (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    run TEXT NOT NULL,
    -- The agent's own name of the call, and what the verdict is bound to.
    call TEXT NOT NULL,
    digest TEXT NOT NULL,
    bot TEXT NOT NULL,
    conversation TEXT NOT NULL,
    generation INTEGER NOT NULL,
    tool TEXT NOT NULL,
    -- What will run, and the texts of others that the run has read, as a list in JSON; both redacted.
    detail TEXT NOT NULL,
    texts TEXT NOT NULL,
    -- What an answer for longer than once covers; empty if there is none.
    covers TEXT NOT NULL,
    choices TEXT NOT NULL,
    -- The person that the run works for, as id and in words.
    person TEXT NOT NULL,
    asker TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'granted', 'denied', 'expired', 'withdrawn')),
    choice TEXT NOT NULL DEFAULT '',
    -- Who decided, in words.
    decider TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    -- The delivery of the question, and its target; empty if only readers of the run's events see the question.
    delivery TEXT NOT NULL DEFAULT '',
    target BLOB,
    -- In steady seconds.
    asked REAL NOT NULL,
    deadline REAL NOT NULL,
    decided REAL
);
CREATE INDEX approvals_of_run ON approvals (run);
CREATE INDEX approvals_open ON approvals (deadline) WHERE state = 'open';
CREATE INDEX approvals_open_of_person ON approvals (person) WHERE state = 'open';

CREATE TABLE standing_approvals (
    id TEXT PRIMARY KEY,
    bot TEXT NOT NULL,
    tool TEXT NOT NULL,
    covers TEXT NOT NULL,
    -- Empty: every conversation.
    conversation TEXT NOT NULL,
    generation INTEGER NOT NULL,
    -- Whether the run had read texts of others when it was given: only then it covers such runs.
    tainted INTEGER NOT NULL,
    -- Who gave it, as id and in words.
    person TEXT NOT NULL,
    giver TEXT NOT NULL,
    -- The run whose question was answered: what it covers is forgotten with it.
    run TEXT NOT NULL,
    expires REAL NOT NULL
);
CREATE INDEX standing_for_tool ON standing_approvals (bot, tool, covers);
CREATE INDEX standing_of_conversation ON standing_approvals (conversation) WHERE conversation <> '';

-- A delivery whose message can be changed later, and the earlier delivery whose message this one replaces.
ALTER TABLE deliveries ADD COLUMN editable INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN replaces TEXT NOT NULL DEFAULT '';
CREATE INDEX deliveries_replacing ON deliveries (replaces) WHERE replaces <> '';
