"""The assistant's tools, each with a declared effect."""
