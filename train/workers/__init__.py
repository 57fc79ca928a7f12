"""One training on several workers: who they are, how they meet, and what they exchange."""
