"""Runs .fbit images with the same C core as the firmware, and fine-tunes them."""
