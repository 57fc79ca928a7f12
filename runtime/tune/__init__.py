"""Tuning runs: a net that learns from labelled samples on a simulated or a real board, and what that gave and cost."""
