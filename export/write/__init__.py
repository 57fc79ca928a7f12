"""A deploy graph to files: .fbit, ONNX, TFLite, C."""
