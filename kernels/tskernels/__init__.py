"""Kernels: operator schemas, the registry and the implementations."""
