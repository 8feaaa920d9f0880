"""Reductions with the residual's addition and the norm that follow them, in one kernel."""
