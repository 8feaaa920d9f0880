"""Kernel packs: native kernels, built once, and consumed by the digest of their library."""
