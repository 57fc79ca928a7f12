"""``python -m flipbit.runtime`` is the ``flipbit`` command."""

import sys

from flipbit.runtime.commands.cli import main

sys.exit(main())
