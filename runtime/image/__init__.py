"""The .fbit image: reading it, its pixel formula, and a NumPy reference that runs it."""
