"""Several ops in one kernel, without communication."""
