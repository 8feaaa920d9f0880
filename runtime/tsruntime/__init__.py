"""The runtime: loads a frozen artifact, checks it and serves it; it decides nothing."""
