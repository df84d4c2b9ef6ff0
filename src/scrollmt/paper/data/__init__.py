"""Data of the package: what the paper printed, and what we say about it."""
