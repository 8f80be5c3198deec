"""Several corosync daemons on one machine: each in a mount and a host-name namespace of its own, all on the one loopback.

A daemon finds itself in the node list by its host's name, writes `/run`, and offers its service at sockets whose names are
fixed. With `force-filesystem-sockets` those are files in `/tmp`, and an overlay gives each daemon a `/tmp` and an `/etc` of
its own. A member runs inside its daemon's namespaces. Nothing of this is left when the daemon is gone. Real-time priority is
off, so that all systems compete for the processors alike; the ring is plain, as unisono is on loopback.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.network_run import ROOT, Servers, start_server
from benchmarks.peers.common import Plan

LIBRARY = "libcpg.so.4"
CONFIG = """\
totem {{
    version: 2
    cluster_name: bench
    transport: knet
    crypto_cipher: none
    crypto_hash: none
    interface {{
        linknumber: 0
        mcastport: {port}
    }}
}}
nodelist {{
{nodes}}}
logging {{
    to_stderr: yes
    to_syslog: no
    to_logfile: no
}}
system {{
    state_dir: {state}
    sched_rr: no
    move_to_root_cgroup: no
}}
"""
NODE = """\
    node {{
        ring0_addr: 127.0.0.{address}
        nodeid: {number}
        name: bench{number}
    }}
"""
NAMESPACES = """\
set -e
hostname {host}
mount -t tmpfs none /run
for folder in etc tmp; do
    mkdir -p /run/bench/$folder/upper /run/bench/$folder/work
    mount -t overlay overlay -o lowerdir=/$folder,upperdir=/run/bench/$folder/upper,workdir=/run/bench/$folder/work /$folder
done
mkdir -p /etc/libqb
touch /etc/libqb/force-filesystem-sockets
exec {command}
"""
ADDRESS_MIN = 11


def find_obstacle() -> str | None:
    """Why several daemons cannot run here; None: they can."""
    if os.geteuid() != 0:
        return "not run: several corosync daemons on one machine need namespaces, and so root"
    for tool in ("unshare", "nsenter"):
        if shutil.which(tool) is None:
            return f"not run: {tool} was not found (Debian's package util-linux)"
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return f"not installed: {LIBRARY} was not found (Debian's package libcpg4)"
    trial = subprocess.run(isolated("bench0", ["true"]), capture_output=True, text=True, check=False)
    if trial.returncode:
        return f"not run: namespaces are refused here ({trial.stderr.strip().splitlines()[-1:] or 'without a word'})"
    return None


def isolated(host: str, command: list[str]) -> list[str]:
    script = NAMESPACES.format(host=host, command=shlex.join(command))
    return ["unshare", "--mount", "--uts", "sh", "-c", script]


def config_of(members: int, port: int, state: Path) -> str:
    nodes = "".join(NODE.format(address=ADDRESS_MIN + i, number=i + 1) for i in range(members))
    return CONFIG.format(port=port, nodes=nodes, state=state)


async def start_corosync(plan: Plan, folder: Path, stack: AsyncExitStack) -> Servers:
    program = shutil.which("corosync") or shutil.which("corosync", path="/usr/sbin:/sbin")
    assert program is not None, "a system without its server is not run"
    daemons = []
    for number in range(plan.members):
        own = folder / f"node-{number}"
        own.mkdir()
        config = own / "corosync.conf"
        config.write_text(config_of(plan.members, plan.ports[0], own), "ascii")
        command = isolated(f"bench{number + 1}", [program, "-f", "-c", str(config)])
        daemons.append(await start_server(f"corosync-{number}", command, folder, stack, quiet=True))

    def wrap(number: int, command: list[str]) -> list[str]:
        inside = ["nsenter", "--mount", "--uts", f"--target={daemons[number].process.pid}"]
        return [*inside, "env", f"PYTHONPATH={ROOT}", *command]

    return Servers(daemons, wrap=wrap)
