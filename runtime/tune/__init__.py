"""Learning from a stream of samples, on a simulated device or a board."""
