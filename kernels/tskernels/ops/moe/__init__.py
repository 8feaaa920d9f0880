"""Mixture of experts: routing, and the experts' own feed-forward networks."""
