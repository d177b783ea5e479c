-- What was told beside a talk is part of its memory, with what it came from.

-- What a notice comes from, in words; empty for what is no notice and is not remembered as one.
ALTER TABLE deliveries ADD COLUMN source TEXT NOT NULL DEFAULT '';
ALTER TABLE history ADD COLUMN source TEXT NOT NULL DEFAULT '';

-- From a chat's new id back to the one under which it is remembered.
CREATE INDEX aliases_by_new_chat ON aliases (adapter, account, moved_to);
