"""`python -m deploy.cli`: the launcher starts roles with it, independent of the PATH."""

from deploy.cli import main

main()
