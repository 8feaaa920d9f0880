"""The scheduler: a C++ core behind typed stubs."""
