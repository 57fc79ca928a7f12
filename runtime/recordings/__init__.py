"""Recordings of sound and sensors, and the windows of them that nets take."""
