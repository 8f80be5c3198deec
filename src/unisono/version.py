"""Which release this is: as it was installed, so that `pyproject.toml` alone says it."""

from importlib.metadata import PackageNotFoundError, version

UNKNOWN = "0+unknown"


def find_version() -> str:
    """Code that is only on the path, from a checkout or an archive, has no release to name."""
    try:
        return version("unisono")
    except PackageNotFoundError:
        return UNKNOWN


__version__ = find_version()
