"""Measured choices: what `tscompile tune` found on a GPU, one table for each architecture."""
