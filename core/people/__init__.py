"""People: persons, their identities, roles and keys, the codes that admit and link them, and the audit trail."""
