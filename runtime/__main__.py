"""``python -m flipbit.runtime`` is the ``flipbit`` command."""

import sys

from flipbit.runtime.cli import main

sys.exit(main())
