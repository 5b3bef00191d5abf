"""`python -m fedrank` is `fedrank`."""

from fedrank.cli import main

if __name__ == "__main__":
    main()
