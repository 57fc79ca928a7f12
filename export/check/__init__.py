"""What was written against what was meant: the oracle, other runtimes, the guard of every export."""
