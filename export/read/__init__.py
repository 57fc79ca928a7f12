"""Models of other tools to a deploy graph."""
