"""The verbs of the ``flipbit`` command that need the runtime alone."""
