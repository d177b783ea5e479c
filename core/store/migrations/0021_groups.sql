-- Groups: whose messages are all for a bot, and how often it has answered other bots.

CREATE TABLE attention (
    -- Adapter, account and chat, with all threads of the chat.
    chat TEXT NOT NULL,
    -- Whose messages; empty means everybody's.
    sender TEXT NOT NULL,
    -- Who that is, in words.
    name TEXT NOT NULL,
    -- In steady seconds.
    given REAL NOT NULL,
    until REAL NOT NULL,
    PRIMARY KEY (chat, sender)
);

CREATE TABLE bot_exchanges (
    -- Adapter and chat: all accounts and threads together.
    chat TEXT PRIMARY KEY,
    -- How many messages of other bots were answered since the last message of a person.
    answered INTEGER NOT NULL
);
