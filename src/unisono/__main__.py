"""`python -m unisono` is the command `unisono`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it still loads exits without a traceback."""
    try:
        from unisono.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
