-- People: persons with identities and roles, codes that admit and link them, keys that belong to them, an audit trail;
-- and talks, which can be found by their title and continued elsewhere.

CREATE TABLE persons (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL DEFAULT '',
    -- Empty: only the settings give this person a role.
    role TEXT NOT NULL CHECK (role IN ('', 'blocked', 'guest', 'member', 'admin', 'owner')),
    -- The person who admitted this one.
    made_by TEXT NOT NULL,
    -- By the wall clock; 0 if unknown.
    at REAL NOT NULL
);

-- An identity belongs to one person.
CREATE TABLE identities (
    -- As adapter:sender, or adapter@account:sender.
    id TEXT PRIMARY KEY,
    person TEXT NOT NULL,
    -- The first of a person's identities has the lowest.
    position INTEGER NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX identities_of_person ON identities (person);

INSERT INTO identities (id, person, position, at) SELECT id, 'psn_' || lower(hex(randomblob(16))), 1, 0 FROM access;
INSERT INTO persons (id, name, role, made_by, at) SELECT person, '', 'member', 'owner', 0 FROM identities;
DROP TABLE access;

-- A code admits the stranger who was told it, or links the chat where it is written with the chat that made it.
CREATE TABLE codes (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('pairing', 'link')),
    -- Of the code itself, which is never stored here.
    digest TEXT NOT NULL UNIQUE,
    -- The account where it was made, as adapter@account.
    account TEXT NOT NULL,
    -- Whom it admits, or who made it.
    identity TEXT NOT NULL,
    name TEXT NOT NULL,
    -- The message that brought the stranger.
    message BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'used', 'ignored')),
    -- The identity that must repeat a link code, because it has something to lose.
    repeat_by TEXT NOT NULL DEFAULT '',
    -- In steady seconds.
    made REAL NOT NULL,
    expires REAL NOT NULL,
    -- By the wall clock.
    at REAL NOT NULL
);
CREATE INDEX codes_by_identity ON codes (identity, kind, made);
CREATE INDEX codes_open ON codes (kind, account, expires) WHERE state = 'open';

-- Wrong codes, by the person or account they came from.
CREATE TABLE code_guesses (
    guesser TEXT PRIMARY KEY,
    wrong INTEGER NOT NULL,
    -- In steady seconds: when the first of them was given.
    since REAL NOT NULL
);

CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    digest TEXT NOT NULL,
    person TEXT NOT NULL,
    -- Lists as JSON.
    scopes TEXT NOT NULL,
    bots TEXT NOT NULL DEFAULT '[]',
    targets TEXT NOT NULL DEFAULT '[]',
    created REAL NOT NULL
);
CREATE INDEX keys_of_person ON keys (person);
INSERT INTO keys (id, name, digest, person, scopes, created)
    SELECT json_extract(each.value, '$.id'), json_extract(each.value, '$.name'), json_extract(each.value, '$.digest'),
        'owner', json_extract(each.value, '$.scopes'), json_extract(each.value, '$.created')
    FROM notebook, json_each(notebook.value) AS each WHERE notebook.adapter = 'api' AND notebook.name = 'keys';
DELETE FROM notebook WHERE adapter = 'api' AND name = 'keys';

-- Entries are only added; retention removes old ones.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    -- By the wall clock.
    at REAL NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    object TEXT NOT NULL,
    detail TEXT NOT NULL DEFAULT ''
);
-- Tells whether people have changed, however many tools have acted since.
CREATE INDEX audit_without_tools ON audit (seq) WHERE action <> 'tool';

-- A talk is one generation of a conversation: what /new ends. Generation 0 only tells whose the conversation is.
CREATE TABLE talks (
    id TEXT PRIMARY KEY,
    conversation TEXT NOT NULL,
    generation INTEGER NOT NULL,
    -- The person who talks alone with the bot, as an identity or as key:ID; empty where a group talks.
    owner TEXT NOT NULL,
    -- The group in which the talk is; empty in private.
    place TEXT NOT NULL,
    -- Empty until a message gives one.
    title TEXT NOT NULL,
    -- The run whose words are the title.
    run TEXT NOT NULL,
    -- When the last exchange ended, by the wall clock.
    at REAL NOT NULL,
    UNIQUE (conversation, generation)
);
CREATE INDEX talks_of_owner ON talks (owner, place, at);
CREATE INDEX talks_by_run ON talks (run) WHERE run <> '';

-- The highest generation so far: an earlier one may be continued.
ALTER TABLE conversations ADD COLUMN latest INTEGER NOT NULL DEFAULT 1;
UPDATE conversations SET latest = generation;
-- When its person was forgotten, in steady seconds: what is older is erased, and so are the generations up to this one.
ALTER TABLE conversations ADD COLUMN forgotten REAL;
ALTER TABLE conversations ADD COLUMN forgotten_to INTEGER NOT NULL DEFAULT 0;
CREATE INDEX conversations_to_forget ON conversations (id) WHERE forgotten IS NOT NULL;
-- To forget a conversation with its commands and their replies.
CREATE INDEX closed_in_conversation ON inbox (conversation, seq) WHERE state = 'closed';
CREATE INDEX replies_in_lane ON deliveries (lane) WHERE kind = 'reply';

-- Conversations from before are found too; their next message gives them a title.
INSERT INTO talks (id, conversation, generation, owner, place, title, run, at)
    SELECT 'talk_' || lower(hex(randomblob(16))), c.id, c.generation,
        CASE WHEN i.adapter = 'api' AND json_extract(i.message, '$.conversation.member') = ''
            THEN 'key:' || json_extract(i.message, '$.conversation.chat')
            ELSE i.adapter || ':' || json_extract(i.message, '$.sender.id') END,
        '', '', '', (SELECT max(at) FROM history h WHERE h.conversation = c.id AND h.generation = c.generation)
    FROM conversations c JOIN listing l ON l.conversation = c.id JOIN inbox i ON i.seq = l.newest
    WHERE json_extract(i.message, '$.target.audience') = 'private'
        AND json_extract(i.message, '$.conversation.adapter') NOT IN ('task', 'schedule', 'card')
        AND substr(json_extract(i.message, '$.conversation.thread'), 1, 5) <> 'once-'
        AND EXISTS (SELECT 1 FROM history h WHERE h.conversation = c.id AND h.generation = c.generation);

-- A chat that goes on with another conversation, or with an earlier talk of its own.
CREATE TABLE handovers (
    -- The conversation of the chat itself.
    conversation TEXT PRIMARY KEY,
    -- The conversation that goes on there, its parts and target as JSON, and a bot that was asked for by name.
    continues TEXT NOT NULL,
    parts BLOB NOT NULL,
    bot TEXT NOT NULL,
    -- The owner of that conversation, and who continued it; empty owner in groups.
    owner TEXT NOT NULL,
    asker BLOB NOT NULL,
    -- For an earlier talk of its own: the generation to return to.
    before INTEGER NOT NULL DEFAULT 0,
    at REAL NOT NULL
);
CREATE INDEX handovers_of ON handovers (continues);
