"""Networks: drawn here, a user's own, and model files."""
