"""Telegram chats, by long polling or webhook."""
