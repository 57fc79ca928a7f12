"""The verbs of export: convert, verify, show."""
