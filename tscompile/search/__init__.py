"""The exact placement search: layouts, reshards, prices, strategies and the dynamic programming."""
