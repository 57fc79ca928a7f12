"""Reads the graph of an ONNX model: each family of operators in a file of its own."""
