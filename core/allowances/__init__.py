"""Allowances: what people, chats, bots and the gateway may use in a day, and what they have used."""
