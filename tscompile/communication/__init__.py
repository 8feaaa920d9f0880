"""What a deployment communicates, as data: read off a plan, priced, printed, and read back."""
