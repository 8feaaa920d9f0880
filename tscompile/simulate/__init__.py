"""Running a frozen plan of all ranks in one process, against the unsharded program in float64."""
