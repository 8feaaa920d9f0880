"""What a deployment needs of a rank, what fits beside it, and how few ranks would do."""
