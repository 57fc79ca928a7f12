"""A simulated device: power, supplies, and what learning costs."""
