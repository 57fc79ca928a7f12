"""How weights become bits: quantizers, update rules, few-bit buffers, 8-bit activations."""
