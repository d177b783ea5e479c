-- Allowances: what people, chats, bots and the gateway have used, and what runs have reserved.

-- What a run has reserved, as JSON: its settlement gives back exactly this, whatever day it is then.
ALTER TABLE inbox ADD COLUMN reservation BLOB;

CREATE TABLE spending (
    -- 'person', 'chat', 'bot', 'gateway' or 'conversation', and which one.
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    -- A day as 2026-11-18, in the zone that applies; 'minute' for the messages of one minute; '' for all time.
    span TEXT NOT NULL,
    -- The process that wrote the row; rows of several processes are added up when they are read.
    node TEXT NOT NULL DEFAULT '',
    -- Of the row 'minute': which minute it counts, and the messages in it.
    minute INTEGER NOT NULL DEFAULT 0,
    messages INTEGER NOT NULL DEFAULT 0,
    runs INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    requests INTEGER NOT NULL DEFAULT 0,
    -- US dollars; 0 where no price is known.
    cost REAL NOT NULL DEFAULT 0,
    -- Reserved by runs that have not ended.
    reserved_tokens INTEGER NOT NULL DEFAULT 0,
    reserved_cost REAL NOT NULL DEFAULT 0,
    -- The most that one run has used.
    peak_tokens INTEGER NOT NULL DEFAULT 0,
    peak_cost REAL NOT NULL DEFAULT 0,
    -- The share of the allowance, in percent, of which the owner was told.
    told INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, name, span, node)
);
CREATE INDEX spending_by_span ON spending (scope, span);

-- What conversations have used was a table of its own.
INSERT INTO spending (scope, name, span, runs, input_tokens, output_tokens, requests, cost)
    SELECT 'conversation', conversation, day, runs, input_tokens, output_tokens, requests, cost FROM usage;
INSERT INTO spending (scope, name, span, runs, input_tokens, output_tokens, requests, cost)
    SELECT 'conversation', conversation, '', sum(runs), sum(input_tokens), sum(output_tokens), sum(requests), sum(cost)
    FROM usage GROUP BY conversation;
DROP TABLE usage;
