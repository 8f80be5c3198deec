"""The Spark session: made in one place, on loopback by default, with errors that name the cure.

Workers get this package with them: on a cluster it is packed into a zip and shipped, so nothing has to be installed there but
Python with numpy, pandas and pyarrow (docs/cluster.md). Their interpreter is `PYSPARK_PYTHON`, or else the driver's.

A program started by `spark-submit` already has a master and settings; those are kept.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from unisono.trace.schema import TraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_AT_LEAST = 17
LOCAL = "local[*]"
CONNECT_S = 5.0
"""How long a standalone master may take to accept a connection. Spark itself would try for a minute."""
EXECUTORS_S = 60.0
"""How long a standalone master may take to give us the first executor. Spark itself would wait for ever."""
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class PipelineError(TraceError):
    """The pipeline cannot run or cannot finish. The text is one sentence with the cure."""


def open_session(
    master: str | None = None, name: str = "unisono", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session to work with. Asking twice for the same master gives the same one."""
    require_pyspark()
    _require_java()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    submitted = _submitted()
    master = master or os.environ.get("UNISONO_SPARK_MASTER") or submitted.get("spark.master") or LOCAL
    _require_master(master)
    running = SparkContext._active_spark_context
    if running is not None and running.master != master:  # Spark would hand out the old session and say nothing
        raise PipelineError(f"Spark already runs in this process on {running.master!r}: stop it before {master!r}.")
    local = _is_local(master)
    # pyspark reads the interpreter of the workers from here, and only when a context is made.
    os.environ["PYSPARK_PYTHON"] = sys.executable if local else os.environ.get("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    options = _defaults(master) | submitted | dict(settings or {}) | {"spark.master": master, "spark.app.name": name}
    try:
        _start_java(options)
        with _own_interrupts():
            session = SparkSession.builder.config(map={**options}).getOrCreate()
    except Exception as error:  # py4j raises what it likes
        raise PipelineError(
            f"Spark did not start on {master!r}: {reason(error)}. Is the master's address right?"
        ) from None
    session.sparkContext.setLogLevel("WARN" if _debug() else "OFF")
    if not local:
        _await_executor(session, master)
        session.sparkContext.addPyFile(str(package_archive()))
    return session


@contextmanager
def plain_errors(what: str) -> Iterator[None]:
    """Whatever Spark or its bridge to Java raises inside becomes one sentence; UNISONO_DEBUG=1 lets it through."""
    try:
        yield
    except Exception as error:
        if isinstance(error, TraceError) or not _of_spark(error) or _debug():
            raise
        raise PipelineError(f"{what} failed: {reason(error)}. UNISONO_DEBUG=1 shows all that Spark says.") from None


def reason(error: BaseException) -> str:
    """The one line of an error that tells a person most: of a worker's traceback the last, of Java's the message."""
    text = str(error).strip()
    traceback = text.find("Traceback (most recent call last)")
    if traceback >= 0:
        for line in text[traceback:].split("\n")[1:]:
            if re.match(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b", line):
                return _short(line.partition(": ")[2] or line)
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if len(lines) > 1 and lines[1].startswith(": "):  # py4j puts the call before what it led to
        lines = lines[1:]
    line = re.sub(r"^:?\s*(?:[\w$]+\.)+[\w$]*(?:Exception|Error):\s*", "", lines[0]) if lines else ""
    return _short(line) or type(error).__name__


def _short(line: str) -> str:
    line = line.strip().rstrip(".")
    return line if len(line) <= 300 else line[:297] + "..."


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep our answer to Ctrl-C. Spark's would call Java in the middle of a call to Java, and print what that leads to."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _quiet_the_bridge()


def _quiet_the_bridge() -> None:
    """Py4J and PySpark write the tracebacks of what they raise to everybody's log, too."""
    from pyspark.logger import PySparkLogger

    for name in (None, "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logger = logging.getLogger() if name is None else PySparkLogger.getLogger(name)
        logger.addFilter(_not_of_the_bridge)


def _not_of_the_bridge(record: logging.LogRecord) -> bool:
    return _debug() or not {"py4j", "pyspark"}.intersection(Path(record.pathname).parts)


def _of_spark(error: BaseException) -> bool:
    """Also a refused connection: that is how a Java process that has died looks from here."""
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j") or isinstance(error, ConnectionError)


def _debug() -> bool:
    return bool(os.environ.get("UNISONO_DEBUG"))


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _defaults(master: str) -> dict[str, str]:
    result = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.skewJoin.enabled": "true",
    }
    if not _debug():
        result["spark.driver.extraJavaOptions"] = "-Dlog4j2.level=off"
    host = master.removeprefix("spark://").rpartition(":")[0]
    if master.startswith("local") or host in _LOOPBACK:  # nothing of ours listens beyond this machine unless asked to
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        result |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if master.startswith("local"):
        result["spark.driver.memory"] = os.environ.get("UNISONO_SPARK_MEMORY", "2g")
    return result


def _submitted() -> dict[str, str]:
    """What `spark-submit` was told, if it started this program."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # without it SparkConf sees nothing of Java's
    return dict(SparkConf().getAll())


def _start_java(options: Mapping[str, str]) -> None:
    """Start the Java process with its own stderr, because what it says there is for nobody but a developer."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if _debug() or SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    conf = SparkConf(loadDefaults=False, _jvm=None).setAll(list(options.items()))
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        try:
            SparkContext._ensure_initialized(gateway=launch_gateway(conf, {"stderr": said}))  # type: ignore[no-untyped-call]
        except Exception:
            said.seek(0)
            lines = [line for line in said.read().split("\n") if "rror" in line]
            raise PipelineError(lines[-1].strip() if lines else "Java did not start") from None


@cache
def package_archive() -> Path:
    """This package as a zip for workers that do not have it. One a process: Spark refuses a second file of that name."""
    root = Path(__file__).resolve().parents[1]
    target = Path(tempfile.mkdtemp(prefix="unisono-")) / "unisono.zip"
    atexit.register(shutil.rmtree, target.parent, ignore_errors=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.suffix in (".py", ".typed") and "__pycache__" not in path.parts:
                archive.write(path, Path("unisono") / path.relative_to(root))
    return target


def require_pyspark() -> None:
    """Call it before the rest of the pipeline is imported, which needs the extra to be loaded at all."""
    for module in ("pyspark", "pyarrow", "pandas", "numpy"):
        if find_spec(module) is None:
            raise PipelineError(f"the pipeline needs {module}: install the extra with `pip install 'unisono[spark]'`.")


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    cure = f"install Java {JAVA_AT_LEAST} or newer (on Debian: apt-get install openjdk-17-jre-headless)"
    if java is None:
        raise PipelineError(f"Spark needs Java, and there is none: {cure}.")
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, errors="replace", check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        raise PipelineError(f"{java} does not run ({reason(error)}): {cure}, or set JAVA_HOME.") from None
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    if found is None or int(found[1]) < JAVA_AT_LEAST:
        raise PipelineError(f"{java} is Java {found[1] if found else 'of unknown version'}: {cure}, or set JAVA_HOME.")


def _require_master(master: str) -> None:
    """Find out in seconds that an address is wrong or nobody listens there."""
    if not master.startswith(("local", "spark://", "yarn", "k8s://")):
        raise PipelineError(f"{master!r} is no Spark master: use local[*], spark://host:7077, yarn or k8s://….")
    if not master.startswith("spark://"):
        return
    said = ""
    for address in master.removeprefix("spark://").split(","):  # several, where masters stand in for one another
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
            return
        except (OSError, ValueError) as error:
            said = str(error)
    raise PipelineError(
        f"no Spark master answers at {master} ({said}): start one (docs/cluster.md), correct --master, or leave it out "
        "to work on this machine."
    )


def _await_executor(session: SparkSession, master: str) -> None:
    """A standalone master without free workers gives no executor and no error: do not wait for ever."""
    if not master.startswith("spark://"):
        return
    context = session.sparkContext._jsc.sc()
    until = time.monotonic() + EXECUTORS_S
    while context.getExecutorMemoryStatus().size() < 2:  # the driver counts as one
        if context.isStopped() or time.monotonic() > until:
            session.stop()
            raise PipelineError(
                f"the Spark master {master} gave no executor within {EXECUTORS_S:.0f} s: are there workers with free cores "
                "and memory (spark.executor.memory)?"
            )
        time.sleep(0.2)
