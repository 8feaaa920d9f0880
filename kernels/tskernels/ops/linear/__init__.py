"""Matrix product with a weight."""
