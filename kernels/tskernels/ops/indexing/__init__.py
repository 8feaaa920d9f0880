"""Selecting rows, slices and coordinates."""
