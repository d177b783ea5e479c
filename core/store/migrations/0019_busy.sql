-- Messages that come while a run goes on: how each may join that run, or others that wait.

-- What a waiting message may do besides waiting for its turn: nothing, 'collect' or 'steer'.
ALTER TABLE inbox ADD COLUMN mode TEXT NOT NULL DEFAULT '' CHECK (mode IN ('', 'collect', 'steer'));
-- Whether other messages have joined this run.
ALTER TABLE inbox ADD COLUMN followed INTEGER NOT NULL DEFAULT 0;
-- Whether a joined message was handed to its run while that was at work: the checkpoint of the run holds it.
ALTER TABLE inbox ADD COLUMN steered INTEGER NOT NULL DEFAULT 0;
-- The run that has read this message and has not stored it yet, with its fence: a later fence voids this.
ALTER TABLE inbox ADD COLUMN heard_by TEXT NOT NULL DEFAULT '';
ALTER TABLE inbox ADD COLUMN heard_fence INTEGER NOT NULL DEFAULT 0;
UPDATE inbox SET followed = 1 WHERE run IN (SELECT joined FROM inbox WHERE joined IS NOT NULL);
CREATE INDEX inbox_steering ON inbox (conversation) WHERE state = 'waiting' AND mode = 'steer';
