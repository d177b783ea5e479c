-- A chat may move more than once: each id that it had says where it lives now and where it began.

ALTER TABLE aliases ADD COLUMN origin TEXT NOT NULL DEFAULT '';
UPDATE aliases SET origin = (
    WITH RECURSIVE back (chat, hops) AS (
        SELECT aliases.chat, 0
        UNION ALL
        SELECT earlier.chat, back.hops + 1 FROM back JOIN aliases earlier ON earlier.adapter = aliases.adapter
            AND earlier.account = aliases.account AND earlier.moved_to = back.chat WHERE back.hops < 8
    )
    SELECT chat FROM back ORDER BY hops DESC LIMIT 1
);
UPDATE aliases SET moved_to = (
    WITH RECURSIVE onward (chat, hops) AS (
        SELECT aliases.moved_to, 0
        UNION ALL
        SELECT later.moved_to, onward.hops + 1 FROM onward JOIN aliases later ON later.adapter = aliases.adapter
            AND later.account = aliases.account AND later.chat = onward.chat WHERE onward.hops < 8
    )
    SELECT chat FROM onward ORDER BY hops DESC LIMIT 1
);

-- Nobody goes back to what was taken back.
UPDATE inbox SET checkpoint = NULL WHERE undone = 1 AND checkpoint IS NOT NULL;
