-- The platform's id of the message that a part became: one message never proves two parts.
ALTER TABLE parts ADD COLUMN posted TEXT NOT NULL DEFAULT '';
UPDATE parts SET posted = coalesce(json_extract(CAST(receipt AS TEXT), '$.ids[0]'), '') WHERE receipt IS NOT NULL;
CREATE INDEX parts_by_message ON parts (posted) WHERE posted <> '';
