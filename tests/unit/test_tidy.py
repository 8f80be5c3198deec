"""The style itself is under test.

Each check is a function from a list of files to a list of offences, and each has a planted fault that it
must find: a check that cannot fail proves nothing.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SOURCE_SUFFIXES = {".py", ".sh", ".js", ".css", ".html"}

# What would let the clock, chance, or the operating system into code that must be deterministic.
IMPURE = {"time", "random", "socket", "asyncio", "logging", "threading", "os", "secrets"}
IMPURE_AT_RUN_TIME_ONLY = {"random"}  # a `Random` is handed in, so its type may be named

# Which parts of unisono a part may import. A part that is not listed may import anything but what `IMPORTED_BY` reserves.
MAY_IMPORT = {
    "core": {"core"},
    "orders": {"core", "orders"},
    "services": {"core", "orders", "services"},
    "environment": {"core"},
    "sim": {"core", "orders", "services", "trace", "environment", "sim"},
}
MAY_NOT_IMPORT = {"pipeline": {"core"}}
# Parts that only the parts named here may import.
IMPORTED_BY = {
    "cli": {"cli", "papers", "__main__"},
    "papers": {"papers", "cli"},
    "experiments": {"experiments", "cli"},
}

ROOMS = (
    "core.streams", "core.views", "core.membership", "core.member",
    "runtime.journal", "trace.diagram", "services.transfer",
)  # fmt: skip
"""Rooms whose door names what others may use. (The modules of `core.wire` are vocabularies: each is a door.)"""

MAY_TOUCH_PRIVATES = {
    "src/unisono/pipeline/session.py",  # Spark's, which has no public way
}
MAY_REPEAT_NAMES = {
    "unisono.orders",  # each protocol has packets of its own, named as its paper names them
}

# Put together from pieces, or this file would find itself.
REGISTRIES = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "npm" + "js.org",
    "anaconda" + ".org",
    "maven" + ".org",
]
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:" + "|".join(["work", "root", "home", "Users"]) + r")/")

Check = Callable[[Sequence[Path]], list[str]]


@dataclass(frozen=True)
class Import:
    """One imported name, dotted and absolute: `from ..core import types` is `unisono.core.types`."""

    name: str
    line: int
    in_function: bool
    for_typing: bool

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]

    @property
    def part(self) -> str | None:
        """Which part of unisono this is ('' for the package itself), or None for other packages."""
        top, _, rest = self.name.partition(".")
        return rest.partition(".")[0] if top == "unisono" else None


def module_parts(path: Path) -> tuple[str, ...]:
    """`…/src/unisono/core/types.py` is ('unisono', 'core', 'types'); () outside of a `src`."""
    parts = path.with_suffix("").parts
    return parts[len(parts) - parts[::-1].index("src") :] if "src" in parts else ()


def part_of(path: Path) -> str:
    return (*module_parts(path), "", "")[1]


@cache
def imports_of(path: Path) -> tuple[Import, ...]:
    """All imports of a module: most checks ask for them, and parsing takes the time."""

    def visit(node: ast.AST, in_function: bool, for_typing: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in imported_names(node, module_parts(path)):
                yield Import(name, node.lineno, in_function, for_typing)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for child in node.body:
                yield from visit(child, in_function, True)
            for child in node.orelse:
                yield from visit(child, in_function, for_typing)
            return
        in_function = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for below in ast.iter_child_nodes(node):
            if isinstance(below, ast.stmt | ast.excepthandler | ast.match_case):  # expressions import nothing
                yield from visit(below, in_function, for_typing)

    return tuple(visit(ast.parse(path.read_text("utf-8")), in_function=False, for_typing=False))


def nodes_of(path: Path, sign: re.Pattern[str]) -> Iterator[ast.AST]:
    """The syntax of a file, if its text shows a sign of what is looked for: few do, and parsing takes the time."""
    text = path.read_text("utf-8")
    return ast.walk(ast.parse(text)) if sign.search(text) else iter(())


def imported_names(node: ast.Import | ast.ImportFrom, module: tuple[str, ...]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    # One dot means the package the module is in; with `__init__` counted as a module, also for packages.
    base = module[: len(module) - node.level] if node.level else ()
    return [".".join(filter(None, [*base, node.module, alias.name])) for alias in node.names]


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name}:{line}"


def python(files: Sequence[Path]) -> list[Path]:
    return [path for path in files if path.suffix == ".py"]


def product(files: Sequence[Path]) -> list[Path]:
    return [path for path in python(files) if module_parts(path)[:1] == ("unisono",)]


def impure_imports(files: Sequence[Path]) -> list[str]:
    """Core and orders know neither clock nor chance nor operating system."""
    return [
        f"{where(path, found.line)}: {part_of(path)} imports {found.top}"
        for path in product(files)
        if part_of(path) in ("core", "orders")
        for found in imports_of(path)
        if found.top in IMPURE and not (found.for_typing and found.top in IMPURE_AT_RUN_TIME_ONLY)
    ]


def wrong_way_imports(files: Sequence[Path]) -> list[str]:
    """Imports go one way through the layers, for types too."""

    def allowed(importer: str, imported: str) -> bool:
        if imported in IMPORTED_BY:
            return importer in IMPORTED_BY[imported]
        if imported in MAY_NOT_IMPORT.get(importer, ()):
            return False
        return importer not in MAY_IMPORT or imported in MAY_IMPORT[importer]

    return [
        f"{where(path, found.line)}: {part_of(path)} imports {found.name}"
        for path in product(files)
        for found in imports_of(path)
        if found.part is not None and not allowed(part_of(path), found.part)
    ]


def heavy_imports(files: Sequence[Path]) -> list[str]:
    """The schema stands on the standard library alone; the rest of trace loads pyarrow only when used."""

    def heavy(path: Path, found: Import) -> bool:
        if module_parts(path) == ("unisono", "trace", "schema"):
            return found.top not in sys.stdlib_module_names
        return found.top == "pyarrow" and not found.in_function and not found.for_typing

    return [
        f"{where(path, found.line)}: trace imports {found.name} here"
        for path in product(files)
        if part_of(path) == "trace"
        for found in imports_of(path)
        if heavy(path, found)
    ]


def side_doors(files: Sequence[Path]) -> list[str]:
    """What lies in a room is imported through its door, except by the room itself; by examples too, which users copy."""
    return [
        f"{where(path, found.line)}: {room} has a door; do not import {found.name}"
        for path in python(files)
        if module_parts(path)[:1] == ("unisono",) or path.parent.name == "examples"
        for found in imports_of(path)
        for room in ROOMS
        if found.name.startswith(f"unisono.{room}.")
        and ".".join(module_parts(path)[1:]) != f"{room}.__init__"
        and not ".".join(module_parts(path)).startswith(f"unisono.{room}.")
        and (
            ROOT / "src/unisono" / room.replace(".", "/") / (found.name.split(".")[room.count(".") + 2] + ".py")
        ).exists()
    ]


def circles_in_core(files: Sequence[Path]) -> list[str]:
    """No two modules of the core import each other, by any way round, not even for their types."""
    modules = {".".join(module_parts(path)).removesuffix(".__init__"): path for path in product(files)}
    core = {name: path for name, path in modules.items() if part_of(path) == "core"}
    imports = {
        name: {
            target
            for found in imports_of(path)
            for target in (found.name, found.name.rpartition(".")[0])
            if target in core and target != name
        }
        for name, path in core.items()
        if path.name != "__init__.py"
    }

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            for name in imports.get(ahead.pop(), ()):
                if name not in seen:
                    seen.add(name)
                    ahead.append(name)
        return seen

    return [
        f"{where(core[name], 1)}: {name} imports itself, by way of others"
        for name in imports
        if name in reachable(name)
    ]


NOT_OF_SELF = re.compile(
    r"((?<![\w.])(?!(?:self|cls|other|os|sys)\b)\w+|\.\w+|\W)\._(?!(?:replace|asdict|fields|make)\b)[a-z]"
)


def foreign_privates(files: Sequence[Path]) -> list[str]:
    """No object touches the underscored names of another one. (Named tuples have public methods that look like them.)"""

    def is_foreign(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Attribute)
            and re.match(r"_[a-z]", node.attr) is not None
            and node.attr not in {"_replace", "_asdict", "_fields", "_make"}
            and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "other", "os", "sys"))
            and not (isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "super")
        )

    return [
        f"{where(path, node.lineno)}: touches {ast.unparse(node)}"
        for path in product(files)
        if str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name) not in MAY_TOUCH_PRIVATES
        for node in nodes_of(path, NOT_OF_SELF)
        if isinstance(node, ast.Attribute) and is_foreign(node)
    ]


def names_used_twice(files: Sequence[Path]) -> list[str]:
    """Within a package a class name is used once."""
    seen: dict[tuple[str, str], Path] = {}
    found = []
    for path in product(files):
        package = ".".join(module_parts(path)[:-1])
        for name in re.findall(r"^class (\w+)", path.read_text("utf-8"), re.MULTILINE):
            first = seen.setdefault((package, name), path)
            if first != path and package not in MAY_REPEAT_NAMES:
                found.append(f"{where(path, 1)}: {package} has a {name} in {first.name}, too")
    return found


def foreign_places(files: Sequence[Path]) -> list[str]:
    """No file names a package registry or a directory of somebody's machine."""

    def offends(line: str) -> bool:
        return any(host in line for host in REGISTRIES) or MACHINE_PATH.search(line) is not None

    return [
        f"{where(path, number)}: {line.strip()}"
        for path in files
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if offends(line)
    ]


def text_of(path: Path) -> str:
    """The file's text, or nothing if it is binary."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return ""


def empty_assertions(files: Sequence[Path]) -> list[str]:
    return [
        f"{where(path, node.lineno)}: this assertion always holds"
        for path in python(files)
        for node in nodes_of(path, re.compile(r"\bassert\b[\s(\\]*True\b"))
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and node.test.value is True
    ]


def pickles(files: Sequence[Path]) -> list[str]:
    """Bytes from outside must never be able to run code."""
    return [
        f"{where(path, found.line)}: imports pickle"
        for path in product(files)
        for found in imports_of(path)
        if found.top == "pickle"
    ]


def unknown_extras(files: Sequence[Path]) -> list[str]:
    """Each extra that a message names exists."""
    extras = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]
    return [
        f"{where(path, number)}: there is no extra {extra}"
        for path in product(files)
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        for extra in re.findall(r"unisono\\*\[(\w+)\]", line)
        if extra not in extras
    ]


CHECKS: list[Check] = [
    impure_imports,
    wrong_way_imports,
    heavy_imports,
    side_doors,
    circles_in_core,
    foreign_privates,
    names_used_twice,
    foreign_places,
    empty_assertions,
    pickles,
    unknown_extras,
]


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """Every file that git tracks or would track; without git, every file outside of hidden directories."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        tops = [top for top in ROOT.iterdir() if not top.name.startswith(".")]
        paths = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top])]
    return sorted(path for path in paths if path.is_file() and "__pycache__" not in path.parts)


def test_the_repository_is_tidy(files: list[Path]) -> None:
    assert not {check.__name__: offences for check in CHECKS if (offences := check(files))}


def test_the_list_of_files_is_not_empty(files: list[Path]) -> None:
    assert {Path(__file__).resolve(), ROOT / "dev", ROOT / "src/unisono/__main__.py"} <= set(files)


FAULTS: list[tuple[Check, str, str]] = [
    (impure_imports, "src/unisono/core/a.py", "import time"),
    (impure_imports, "src/unisono/core/a.py", "import os.path as p"),
    (impure_imports, "src/unisono/core/deep/a.py", "from random import Random"),
    (impure_imports, "src/unisono/orders/a.py", "def f():\n    import socket"),
    (impure_imports, "src/unisono/orders/a.py", "if TYPE_CHECKING:\n    import asyncio"),
    (impure_imports, "src/unisono/orders/a.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import random"),
    (wrong_way_imports, "src/unisono/core/a.py", "from unisono.orders import fifo"),
    (wrong_way_imports, "src/unisono/core/a.py", "from unisono import orders"),
    (wrong_way_imports, "src/unisono/core/a.py", "from ..orders.fifo import Fifo"),
    (wrong_way_imports, "src/unisono/core/__init__.py", "from ..orders import fifo"),
    (wrong_way_imports, "src/unisono/core/a.py", "import unisono"),
    (
        wrong_way_imports,
        "src/unisono/orders/a.py",
        "if TYPE_CHECKING:\n    from unisono.sim.world import World",
    ),
    (wrong_way_imports, "src/unisono/sim/a.py", "import unisono.runtime.udp"),
    (wrong_way_imports, "src/unisono/pipeline/a.py", "from unisono.core.types import View"),
    (wrong_way_imports, "src/unisono/trace/a.py", "from unisono.cli import main"),
    (wrong_way_imports, "src/unisono/__init__.py", "from unisono.cli import main"),
    (wrong_way_imports, "src/unisono/runtime/a.py", "from unisono.papers.ptp.link import Link"),
    (wrong_way_imports, "src/unisono/services/a.py", "def f():\n    from ..papers import directory"),
    (wrong_way_imports, "src/unisono/pipeline/a.py", "import unisono.papers"),
    (wrong_way_imports, "src/unisono/experiments/a.py", "from unisono import papers"),
    (wrong_way_imports, "src/unisono/runtime/a.py", "from unisono.experiments import grid"),
    (wrong_way_imports, "src/unisono/sim/a.py", "def f():\n    from unisono import experiments"),
    (wrong_way_imports, "src/unisono/pipeline/a.py", "import unisono.experiments.model"),
    (heavy_imports, "src/unisono/trace/schema.py", "from unisono.core import types"),
    (heavy_imports, "src/unisono/trace/schema.py", "def f():\n    import pyarrow"),
    (heavy_imports, "src/unisono/trace/a.py", "import pyarrow.parquet"),
    (side_doors, "src/unisono/runtime/a.py", "from unisono.core.streams.streams import Streams"),
    (side_doors, "src/unisono/core/member/a.py", "from unisono.core.views import engine"),
    (side_doors, "examples/a.py", "from unisono.core.member.member import Member"),
    (foreign_privates, "src/unisono/core/a.py", "def f(member):\n    return member._view"),
    (foreign_privates, "src/unisono/core/a.py", "self.streams._window = 3"),
    (foreign_privates, "src/unisono/core/a.py", "self._streams._window = 3"),
    (foreign_privates, "src/unisono/core/a.py", "streams()._window = 3"),
    *((foreign_places, "docs/a.md", f"see {host}") for host in REGISTRIES),
    (foreign_places, "requirements/a.txt", "--find-links=/" + "root/wheels"),
    (foreign_places, "a.toml", 'path = "/' + 'work/main"'),
    (empty_assertions, "tests/unit/test_a.py", "def test_a():\n    assert True"),
    (pickles, "src/unisono/trace/a.py", "from pickle import loads"),
    (unknown_extras, "src/unisono/trace/a.py", "'pip install unisono[report]'"),
]

LEGAL: list[tuple[Check, str, str]] = [
    (impure_imports, "src/unisono/core/a.py", "if TYPE_CHECKING:\n    from random import Random"),
    (impure_imports, "src/unisono/sim/a.py", "import random"),
    (
        wrong_way_imports,
        "src/unisono/core/a.py",
        "from . import types\nfrom .types import View\nimport heapq",
    ),
    (wrong_way_imports, "src/unisono/core/__init__.py", "from .types import View"),
    (wrong_way_imports, "src/unisono/orders/a.py", "from unisono.core.types import View"),
    (wrong_way_imports, "src/unisono/sim/a.py", "from unisono.trace.schema import EVENTS"),
    (wrong_way_imports, "src/unisono/pipeline/a.py", "from unisono.trace import schema"),
    (
        wrong_way_imports,
        "src/unisono/cli/a.py",
        "from unisono.cli import main\nfrom unisono.sim import world",
    ),
    (wrong_way_imports, "src/unisono/cli/a.py", "from unisono.papers.commands import register"),
    (wrong_way_imports, "src/unisono/papers/a.py", "from unisono.cli.keyboard import Keyboard"),
    (heavy_imports, "src/unisono/trace/schema.py", "from __future__ import annotations\nimport enum"),
    (heavy_imports, "src/unisono/trace/a.py", "def f():\n    import pyarrow"),
    (side_doors, "src/unisono/runtime/a.py", "from unisono.core.streams import Streams"),
    (side_doors, "src/unisono/core/streams/a.py", "from unisono.core.streams.streams import Streams"),
    (circles_in_core, "src/unisono/core/a.py", "from unisono.core import b"),
    (foreign_privates, "src/unisono/core/a.py", "self._view = super()._view\nrow._replace(a=1)"),
    (names_used_twice, "src/unisono/core/a.py", "class A: ...\nclass B: ..."),
    (foreign_places, "docs/a.md", "see docs/" + "work/plan.md"),
    (empty_assertions, "tests/unit/test_a.py", "assert 1 + 1 == 2"),
    (pickles, "src/unisono/trace/a.py", "import json"),
    (unknown_extras, "src/unisono/trace/a.py", "'pip install unisono[spark]'"),
]


def plant(tmp_path: Path, name: str, text: str) -> list[Path]:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return [path]


@pytest.mark.parametrize(("check", "name", "text"), FAULTS)
def test_a_planted_fault_is_found(check: Check, name: str, text: str, tmp_path: Path) -> None:
    assert len(check(plant(tmp_path, name, text))) == 1


@pytest.mark.parametrize(("check", "name", "text"), LEGAL)
def test_what_is_legal_is_left_alone(check: Check, name: str, text: str, tmp_path: Path) -> None:
    assert check(plant(tmp_path, name, text)) == []


def test_two_modules_that_import_each_other_are_found(tmp_path: Path) -> None:
    planted = [
        *plant(tmp_path, "src/unisono/core/a.py", "from unisono.core.b import B"),
        *plant(tmp_path, "src/unisono/core/b.py", "if TYPE_CHECKING:\n    from unisono.core.c import C"),
        *plant(tmp_path, "src/unisono/core/c.py", "from unisono.core import a"),
    ]
    assert len(circles_in_core(planted)) == 3
    assert circles_in_core(planted[:2]) == []


def test_a_class_name_that_a_package_uses_twice_is_found(tmp_path: Path) -> None:
    planted = [
        *plant(tmp_path, "src/unisono/core/a.py", "class A: ..."),
        *plant(tmp_path, "src/unisono/core/b.py", "class A: ..."),
        *plant(tmp_path, "src/unisono/sim/b.py", "class A: ..."),
    ]
    assert len(names_used_twice(planted)) == 1


def test_every_check_has_a_planted_fault() -> None:
    assert {check for check, _, _ in FAULTS} | {names_used_twice, circles_in_core} == set(CHECKS)


def test_binary_files_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"\xff\xfe" + REGISTRIES[0].encode())
    assert foreign_places([path]) == []
