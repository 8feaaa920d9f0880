"""The engine: requests in, tokens out, one step at a time."""
