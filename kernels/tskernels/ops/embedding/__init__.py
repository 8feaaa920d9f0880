"""Token embedding."""
