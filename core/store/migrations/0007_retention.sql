-- What goes after a while leaves its count behind; what was given up says whether it may have arrived; and a year of use
-- stays quick.

-- For lists, one line for each conversation: narrow, since what a bot remembers of it is not.
CREATE TABLE listing (
    conversation TEXT PRIMARY KEY,
    -- Its newest message.
    newest INTEGER NOT NULL,
    -- Messages that were said here and whose rows are gone.
    pruned INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX listing_by_newest ON listing (newest);
INSERT INTO listing (conversation, newest)
    SELECT conversation, max(seq) FROM inbox WHERE kind = 'message' GROUP BY conversation;

-- It was given up, and nobody knew whether it had arrived.
ALTER TABLE parts ADD COLUMN unsure INTEGER NOT NULL DEFAULT 0;
UPDATE parts SET unsure = 1 WHERE state = 'dead' AND tried IS NOT NULL AND delivery IN (SELECT id FROM deliveries
    WHERE state = 'dead' AND (reason LIKE 'unconfirmed:%' OR reason LIKE 'expired:%'));

-- The owner has seen the loss, and wants to hear no more of it.
ALTER TABLE deliveries ADD COLUMN dismissed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX deliveries_in_trouble ON deliveries (state, seq)
    WHERE state <> 'delivered' AND kind <> 'opening' AND dismissed = 0;
CREATE INDEX openings_on_their_way ON deliveries (state)
    WHERE kind = 'opening' AND state IN ('waiting', 'held', 'doubtful');

-- What was said in a conversation, whatever was forgotten in between; and what a run has said.
CREATE INDEX history_in_order ON history (conversation, seq);
CREATE INDEX history_of_run ON history (run);
-- What can be taken back.
CREATE INDEX checkpoints ON inbox (conversation, seq) WHERE checkpoint IS NOT NULL;
