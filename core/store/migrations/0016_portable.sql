-- Statements keep to what SQLite and PostgreSQL share: facts that were looked for inside JSON become columns.

-- `only` is a reserved word elsewhere.
ALTER TABLE epoch RENAME COLUMN only TO id;

-- A worker's process is known by its boot too; the gateway that started it has stored that boot.
UPDATE card_attempts SET born = (SELECT boot FROM epoch) || '/' || born WHERE ended IS NULL AND born <> ''
    AND EXISTS (SELECT 1 FROM epoch WHERE boot <> '');

-- The run ends with the connection of the client that asked for it.
ALTER TABLE inbox ADD COLUMN attended INTEGER NOT NULL DEFAULT 0;
UPDATE inbox SET attended = 1 WHERE state IN ('waiting', 'running')
    AND instr(message, CAST('"attended":true' AS BLOB)) > 0;

-- The body names files.
ALTER TABLE deliveries ADD COLUMN has_files INTEGER NOT NULL DEFAULT 0;
UPDATE deliveries SET has_files = 1 WHERE instr(body, CAST('"files":[{' AS BLOB)) > 0;

-- Restarts of a run are found by their kind.
UPDATE journal SET kind = 'restarted' WHERE kind = 'event' AND instr(event, CAST('{"type":"restarted"' AS BLOB)) = 1;

-- The view in which the answer of a run grows belongs to what goes out, not to the message that came in.
CREATE TABLE views (
    run TEXT PRIMARY KEY,
    view BLOB NOT NULL
) WITHOUT ROWID;
INSERT INTO views (run, view) SELECT run, view FROM inbox WHERE view IS NOT NULL;
ALTER TABLE inbox DROP COLUMN view;
