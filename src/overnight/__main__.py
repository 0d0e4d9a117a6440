"""`python -m overnight` is the same as `overnight`."""

from overnight.cli import main

if __name__ == "__main__":
    main()
