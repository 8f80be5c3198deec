"""The Spark session: made in one place, on loopback by default, with errors that name the cure.

Workers get this package with them: on a cluster it is packed into a zip and shipped, so nothing has to be installed there but
Python with numpy, pandas and pyarrow (docs/cluster.md). Their interpreter is `PYSPARK_PYTHON`, or else the driver's.

What the user says wins. In this order: the settings handed to `open_session` (`--conf` of a command), `PYSPARK_SUBMIT_ARGS`
or `spark-submit`, `spark-defaults.conf`; our own defaults only fill the gaps.
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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from unisono.trace.schema import TraceError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

JAVA_AT_LEAST = 17
LOCAL = "local[*]"
CONNECT_S = 5.0
"""How long a standalone master may take to accept a connection. Spark itself would try for a minute."""
EXECUTORS_S = 60.0
"""How long a standalone master may take to give us the first executor. Spark itself would wait for ever."""
_FILLED = "spark.unisono.filled"
"""A setting that lists those of ours that filled a gap."""
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

    wanted = dict(settings or {})
    master = master or os.environ.get("UNISONO_SPARK_MASTER") or wanted.get("spark.master")
    if master is not None:
        _require_master(master)
    _survive_java()
    running = SparkContext._active_spark_context
    if running is not None:
        return _join_running(running, master, wanted)
    if master is not None and not _is_local(master):
        # Java runs sources of streams here, in the workers' interpreter, and hands this on to them.
        known = filter(None, (str(package_archive()), os.environ.get("PYTHONPATH")))
        os.environ["PYTHONPATH"] = os.pathsep.join(known)
    try:
        given = _start_java(wanted)
    except Exception as error:
        raise _did_not_start(master or LOCAL, error) from None
    if master is None:
        master = given.get("spark.master", LOCAL)
        _require_master(master)
    local = _is_local(master)
    # pyspark reads the interpreter of the workers from here, and only when a context is made.
    os.environ["PYSPARK_PYTHON"] = sys.executable if local else os.environ.get("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    given |= wanted
    filled = {key: value for key, value in _defaults(master, name).items() if key not in given}
    options = filled | given | {"spark.master": master, _FILLED: ",".join(sorted(filled))}
    try:
        with _own_interrupts():
            session = SparkSession.builder.config(map={**options}).getOrCreate()
    except Exception as error:  # py4j raises what it likes
        raise _did_not_start(master, error) from None
    session.sparkContext.setLogLevel("WARN" if _debug() else "OFF")
    if not local:
        _await_executor(session, master)
        session.sparkContext.addPyFile(str(package_archive()))
    _hand_on_storage(session)
    return session


def is_given(spark: SparkSession, key: str) -> bool:
    """Whether the user has chosen this setting, so that ours does not count."""
    conf = spark.sparkContext.getConf()
    return conf.contains(key) and key not in str(conf.get(_FILLED, "")).split(",")


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """The settings of `--conf key=value` options."""
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise PipelineError(f"--conf {text!r} is no setting: write it as spark.key=value.")
        settings[key.strip()] = value
    return settings


def _join_running(running: SparkContext, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    """The session of a context that is there already, which keeps its settings but for those that are given now."""
    from pyspark.sql import SparkSession

    if master is not None and running.master != master:  # Spark would hand out the old session and say nothing
        raise PipelineError(f"Spark already runs in this process on {running.master!r}: stop it before {master!r}.")
    session = SparkSession.builder.config(map={**settings}).getOrCreate()
    _hand_on_storage(session)
    return session


def _hand_on_storage(session: SparkSession) -> None:
    """Give Python workers the variables that lead to S3, with every task rather than as settings of Spark.

    Settings would show the secret key in the list of processes. What `spark.executorEnv` says is left as it is.
    """
    from unisono.pipeline.storage import SETTINGS

    context = session.sparkContext
    for name in SETTINGS:
        if name in os.environ and not context.getConf().contains(f"spark.executorEnv.{name}"):
            context.environment[name] = os.environ[name]


def _did_not_start(master: str, error: Exception) -> PipelineError:
    if isinstance(error, PipelineError):
        return error
    return PipelineError(f"Spark did not start on {master!r}: {reason(error)}. Is the master's address right?")


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
    if isinstance(error, ConnectionError):
        return "Spark's Java process has ended: it was killed, or needs more memory (UNISONO_SPARK_MEMORY, else 2g)"
    text = str(error).strip()
    traceback = text.find("Traceback (most recent call last)")
    if traceback >= 0:
        for line in text[traceback:].split("\n")[1:]:
            if re.match(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b", line):
                return _short(line.partition(": ")[2] or line)
    own = re.search(r"\bunisono(?:\.\w+)+: (.+)", text)  # of a worker that hides its traceback
    if own:
        return _short(own[1])
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


def _survive_java() -> None:
    """When Java has died, a write to it must be an error that is told, not the silent end of this process."""
    if hasattr(signal, "SIGPIPE") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)


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


def _defaults(master: str, name: str) -> dict[str, str]:
    result = {
        "spark.app.name": name,
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.skewJoin.enabled": "true",
    }
    host = master.removeprefix("spark://").rpartition(":")[0]
    if master.startswith("local") or host in _LOOPBACK:  # nothing of ours listens beyond this machine unless asked to
        result |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return result


def _start_java(settings: Mapping[str, str]) -> dict[str, str]:
    """Start the Java process, unless `spark-submit` has done it, and return the settings that the user has given it.

    What Java itself needs to start is handed over in variables that yield to the user's own settings. Its stderr goes
    to a file, because what it says there is for developers alone.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("SPARK_DRIVER_MEMORY", os.environ.get("UNISONO_SPARK_MEMORY", "2g"))
        conf = SparkConf(loadDefaults=False, _jvm=None)
        conf.setAll([("spark.ui.showConsoleProgress", "false"), *settings.items()])  # else true in a shell
        with tempfile.TemporaryFile("w+", errors="replace") as said, _quiet_java():
            try:
                gateway = launch_gateway(conf, None if _debug() else {"stderr": said})  # type: ignore[no-untyped-call]
            except Exception:
                said.seek(0)
                lines = [line for line in said.read().split("\n") if "rror" in line]
                raise PipelineError(lines[-1].strip() if lines else "Java did not start") from None
        SparkContext._ensure_initialized(gateway=gateway)
    SparkContext._ensure_initialized()  # without it SparkConf sees nothing of Java's
    given = dict(SparkConf().getAll())
    if given.get("spark.app.name") == "pyspark-shell":  # Spark's own word
        del given["spark.app.name"]
    return given


@contextmanager
def _quiet_java() -> Iterator[None]:
    """Start Java without its log; options of the user come behind these and win."""
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    if not _debug():
        os.environ["SPARK_SUBMIT_OPTS"] = f"-Dlog4j2.level=off {before or ''}"
    try:
        yield
    finally:
        os.environ.pop("SPARK_SUBMIT_OPTS", None)
        if before is not None:
            os.environ["SPARK_SUBMIT_OPTS"] = before


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
    for module in ("pyspark", "pyarrow", "pandas", "numpy", "deltalake"):
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
    """Find out in seconds that an address is wrong or has no listener."""
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
