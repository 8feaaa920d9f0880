"""Predicted times: what the choice of placements minimises."""
