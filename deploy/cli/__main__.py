"""`python -m deploy.cli`: how the launcher starts roles, whatever is on the PATH."""

from deploy.cli import main

main()
