"""Paged attention and its cache."""
