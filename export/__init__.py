"""Turns a trained model into files that devices and other tools run: .fbit, ONNX, TFLite, C."""
