"""Views: aliases of the input, nothing runs."""
