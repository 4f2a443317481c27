"""Start a SLURM of one machine from Debian's packages, run a command in it, and end it.

    apt-get install slurm-wlm munge
    python -m tests.far.slurm pytest -m slow tests/far/test_launching.py

It has a folder, keys and ports of its own and touches nothing else of the machine.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CONFIG = """
ClusterName=taskmix
SlurmctldHost={host}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={node}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def slurm() -> Iterator[dict[str, str]]:
    """The environment of a command that is to find it."""
    missing = [name for name in ("munged", "slurmctld", "slurmd") if not program(name)]
    if missing:
        raise SystemExit(f"{', '.join(missing)} missing; apt-get install slurm-wlm munge.")
    daemons: list[subprocess.Popen] = []
    with tempfile.TemporaryDirectory(prefix="taskmix-slurm-") as name:
        folder = Path(name)
        # The socket is in it, and jobs of the same user look for it.
        folder.chmod(0o755)
        for part in ("state", "spool"):
            (folder / part).mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        config = folder / "slurm.conf"
        host = socket.gethostname().split(".")[0]
        ports = {"controller": free_port(), "node": free_port()}
        user = getpass.getuser()
        config.write_text(CONFIG.format(host=host, user=user, folder=folder, **ports))
        environment = {**os.environ, "SLURM_CONF": str(config)}
        try:
            daemons.append(_munge(folder, key))
            for daemon in ("slurmctld", "slurmd"):
                command = [program(daemon), "-D", "-f", str(config)]
                quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                daemons.append(subprocess.Popen(command, env=environment, **quiet))
            _wait_until_idle(environment, folder)
            yield environment
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    daemon.wait(20)
                daemon.kill()


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def _munge(folder: Path, key: Path) -> subprocess.Popen:
    command = [program("munged"), "--foreground", "--force", f"--key-file={key}"]
    command += [f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid"]
    command += [f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    daemon = subprocess.Popen(command, **quiet)
    until = time.monotonic() + 20
    while not (folder / "munge.socket").exists() and time.monotonic() < until:
        time.sleep(0.1)
    return daemon


def _wait_until_idle(environment: dict[str, str], folder: Path) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        told = subprocess.run(
            ["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True
        )
        if "idle" in told.stdout:
            return
        time.sleep(0.5)
    logs = "".join(
        f"\n{path.name}:\n{path.read_text()[-2000:]}" for path in sorted(folder.glob("*.log"))
    )
    raise SystemExit(f"SLURM did not start.{logs}")


if __name__ == "__main__":
    # Whoever ends this ends the daemons, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with slurm() as environment:
        sys.exit(subprocess.run(sys.argv[1:], env=environment).returncode)
