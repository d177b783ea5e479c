-- For whom work is done that begins or ends later: a person and where they asked for it, as JSON. NULL is the owner at
-- the command line or with a key.
ALTER TABLE cards ADD COLUMN asker BLOB;
ALTER TABLE tasks ADD COLUMN asker BLOB;

-- Who has named a folder first.
CREATE INDEX cards_by_workspace ON cards (lower(workspace)) WHERE workspace <> '';

-- What was planned in a chat before this was kept is for whoever planned it there.
UPDATE schedules SET plan = json_set(CAST(plan AS TEXT), '$.asker', json_object(
    'conversation', json_object(
        'adapter', json_extract(CAST(plan AS TEXT), '$.target.adapter'),
        'account', coalesce(json_extract(CAST(plan AS TEXT), '$.target.account'), 'main'),
        'chat', coalesce(json_extract(CAST(plan AS TEXT), '$.target.chat'), ''),
        'thread', coalesce(json_extract(CAST(plan AS TEXT), '$.target.thread'), '')),
    'target', json(json_extract(CAST(plan AS TEXT), '$.target')),
    -- Whether the platform had proved who it was stands in what they said there.
    'sender', json(coalesce(
        (SELECT json_extract(CAST(i.message AS TEXT), '$.sender') FROM inbox i WHERE i.conversation = schedules.owner
            AND json_extract(CAST(i.message AS TEXT), '$.sender.id') = json_extract(CAST(plan AS TEXT), '$.sender')
            ORDER BY i.seq DESC LIMIT 1),
        json_object('id', json_extract(CAST(plan AS TEXT), '$.sender'))))))
    WHERE owner <> '' AND coalesce(json_extract(CAST(plan AS TEXT), '$.sender'), '') <> '';

-- Where it is told may have been changed since; they have planned it where they talk.
UPDATE schedules SET plan = (SELECT json_set(CAST(plan AS TEXT),
        '$.asker.conversation', json(json_extract(CAST(i.message AS TEXT), '$.conversation')),
        '$.asker.target', json(json_remove(json_extract(CAST(i.message AS TEXT), '$.target'), '$.reply_to', '$.handle')))
    FROM inbox i WHERE i.conversation = schedules.owner ORDER BY i.seq DESC LIMIT 1)
    WHERE json_extract(CAST(plan AS TEXT), '$.asker') IS NOT NULL
    AND EXISTS (SELECT 1 FROM inbox i WHERE i.conversation = schedules.owner);
