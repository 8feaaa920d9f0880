"""The proof that a plan computes its traced program: certificate and independent checker."""
