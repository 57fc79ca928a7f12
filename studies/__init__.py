"""What needs training, export and runtime together: comparisons with other engines, and studies of learning."""
