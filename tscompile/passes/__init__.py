"""The passes of the compiler, each a pure function from plan to plan; listed in `pipeline`."""
