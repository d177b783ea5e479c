-- What a person is shown once the answer has arrived; empty where nothing has shown that the message was seen.
ALTER TABLE deliveries ADD COLUMN signal TEXT NOT NULL DEFAULT '';
