"""python -m errornorm.cli"""

import sys

from . import main

sys.exit(main())
