"""`python -m fedrank` is `fedrank`."""

from fedrank.cli import main

main()
