"""Reads the graph of ATen operators that torch.export gives: each kind of operator in a file of its own."""
