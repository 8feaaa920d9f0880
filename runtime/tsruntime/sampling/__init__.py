"""Sampling: from logits to the next token, by rules that do not depend on the batch."""
