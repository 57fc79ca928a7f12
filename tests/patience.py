"""How long a test waits for another process before it takes it for hung."""

# Seconds. A machine under load is slow, and no test is about speed: this only ends what would never end.
PATIENCE = 600
