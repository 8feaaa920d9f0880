"""What changes between two deployments: their communication plans, compared."""
