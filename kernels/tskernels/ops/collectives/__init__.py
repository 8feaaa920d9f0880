"""Collectives over the axes of the mesh."""
