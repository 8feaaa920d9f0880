"""The paged KV cache of one rank: page pools and page tables."""
