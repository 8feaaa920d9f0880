"""Freezing: from a plan and a checkpoint to the artifact's bytes on disk."""
