"""Recorded programs: what replays a bound program as a whole."""
