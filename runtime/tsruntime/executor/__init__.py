"""The executor: binds the programs of a plan for one rank and runs them."""
