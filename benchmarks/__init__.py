"""Benchmarks against peers, each in one run on one machine."""
