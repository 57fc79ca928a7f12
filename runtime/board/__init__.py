"""Boards: what they are, what a net takes on one, flashing and emulating them."""
