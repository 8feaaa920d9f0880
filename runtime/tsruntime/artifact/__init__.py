"""The artifact: its schema, how it is read, and what is checked of it."""
