-- What grows is found by an index, what nobody wants kept is erased, and a clock that may be wrong ends nothing.

-- Tasks that have ended, the newest first.
CREATE INDEX tasks_ended ON tasks (created) WHERE NOT state IN ('waiting', 'running');

-- Of schedules that are gone; from now on they go together.
DELETE FROM firings WHERE schedule NOT IN (SELECT id FROM schedules) AND state IN ('done', 'missed')
    AND (delivery = '' OR delivery_state <> '');

-- Nobody wants it kept: it is erased as soon as it is over.
ALTER TABLE inbox ADD COLUMN forget INTEGER NOT NULL DEFAULT 0;
CREATE INDEX inbox_to_forget ON inbox (seq) WHERE forget = 1;
-- What was only hidden until now.
UPDATE inbox SET forget = 1 WHERE run IN (SELECT substr(name, 11) FROM notebook WHERE name LIKE 'forgotten/%')
    AND state IN ('waiting', 'running', 'done');
DELETE FROM notebook WHERE name LIKE 'forgotten/%';

-- After a reboot: may the clock be relied on that says how much time has passed?
ALTER TABLE epoch ADD COLUMN confirmed INTEGER NOT NULL DEFAULT 1;
