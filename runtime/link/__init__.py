"""The line to a board: frames, requests and answers."""
