"""Data: pictures, arrays and data sets, one reader each, and drifts to try learning on."""
