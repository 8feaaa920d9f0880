"""Tokens to the ranks of their experts and back: what stands on either side of an all-to-all."""
