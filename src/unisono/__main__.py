"""`python -m unisono` is the command `unisono`."""

import sys


def main() -> None:
    """Whoever changes his mind while the command is still being loaded sees no page of complaints."""
    try:
        from unisono.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
