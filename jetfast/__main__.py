"""`python -m jetfast`: the command line."""

from jetfast.cli import main

if __name__ == "__main__":
    main()
