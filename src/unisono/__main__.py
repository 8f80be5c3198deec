"""`python -m unisono` is the command `unisono`."""

from unisono.cli import main

if __name__ == "__main__":
    main()
