"""The commands of training: ``flipbit train`` and ``flipbit reproduce``."""
