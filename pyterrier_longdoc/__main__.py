"""``python -m pyterrier_longdoc``: see :mod:`pyterrier_longdoc.cli`."""

import sys

from pyterrier_longdoc.cli import main

if __name__ == "__main__":
    sys.exit(main())
