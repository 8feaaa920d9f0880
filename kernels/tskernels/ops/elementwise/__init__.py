"""Elementwise arithmetic."""
