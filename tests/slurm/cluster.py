"""A whole Slurm in one temporary folder, on one machine, under a clock that is not the machine's.

Programs are Debian's own. All of them get their settings from the folder, so that nothing of the machine's
configuration is read or changed. Each process carries a mark in its environment; stopping ends those that carry it, and
nothing else.
"""

import contextlib
import glob
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from datetime import datetime, timezone

MARK = "GPULEDGER_SLURM_LAB"
NODE_MARK = f"{MARK}_NODE"
NAME = "gpulab"
ACCOUNTS = [("physics", "root"), ("nlp", "root"), ("nlp-infer", "nlp")]
MEMBERS = [("alice", "physics"), ("carol", "physics"), ("bob", "nlp"), ("carol", "nlp-infer")]
USERS = sorted({user for user, _ in MEMBERS})

# Name, what is in it. The third node's GPUs have no type, as on many small clusters.
NODES = [("gpu01", [("h100", 4), ("a100_3g.20gb", 2)]), ("gpu02", [("h100", 2)]), ("gpu03", [("", 2)])]
TRES = "gres/gpu,gres/gpu:h100,gres/gpu:a100_3g.20gb"

SLURM_CONF = """\
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
# A job that is started again waits for this many seconds; the usual 120 would make the lab slow.
AuthInfo=socket={folder}/munge.sock,cred_expire=6
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
# The nodes pretend to have more than this machine has.
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0
KillWait=2
GresTypes=gpu
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[1]}
# What stands for a password here is the socket of munge.
AccountingStoragePass={folder}/munge.sock
AccountingStorageTRES={tres}
# Without this the books keep no comment of a job.
AccountingStoreFlags=job_comment
AccountingStorageEnforce=associations,limits
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# A node that was taken down comes back when it is told to, not by itself.
ReturnToService=1
MinJobAge=300
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=1-0 DefMemPerCPU=1000 PriorityTier=10 State=UP
PartitionName=low Nodes=ALL MaxTime=1-0 DefMemPerCPU=1000 PriorityTier=1 State=UP
"""

SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={ports[1]}
SlurmUser=root
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageUser=root
StorageLoc=slurm_acct
"""


def fake_clock_library():
    """Where Debian keeps the library of `faketime`; the variant for programs with threads."""
    found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not found:
        raise SystemExit("libfaketime is missing: install Debian's package faketime")
    return found[0]


def free_ports(count):
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(socket.socket()) for _ in range(count)]
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [holder.getsockname()[1] for holder in holders]


def as_user(user):
    """What makes a program run as this user; as root if there is none."""
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}


class Cluster:
    def __init__(self, begins):
        """`begins` is what the lab's clock shows at the start, in UTC."""
        self.begun_at = time.time()
        self.folder = tempfile.mkdtemp(prefix="gpuledger-slurm-", dir="/tmp")
        # Users submit jobs, so they must reach the configuration and the socket of munge.
        os.chmod(self.folder, 0o755)
        self.users_made = []
        self.last_refusal = None
        self.ports = free_ports(2 + len(NODES))
        self.set_clock(begins)

    # The clock

    def set_clock(self, shows):
        """From here on programs that are started see this time; those that run already do not."""
        self.offset_s = shows.timestamp() - time.time()

    def now(self):
        return datetime.fromtimestamp(time.time() + self.offset_s, timezone.utc)

    def sleep_until(self, moment):
        time.sleep(max(0.0, (moment - self.now()).total_seconds()))

    # Programs

    def environment(self):
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "SLURM_CONF": f"{self.folder}/slurm.conf",
            "MYSQL_UNIX_PORT": f"{self.folder}/mariadb.sock",
            "LD_PRELOAD": fake_clock_library(),
            "FAKETIME": f"{self.offset_s:+.3f}",
            # Waiting is measured by the monotonic clock, which has no need to be false.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            MARK: self.folder,
        }

    def run(self, *command, user=None, check=True):
        """Runs a program to its end and gives its standard output."""
        done = subprocess.run(
            command,
            env=self.environment(),
            cwd="/tmp",
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            **as_user(user),
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, *command, user=None, extra=None):
        """Starts a program and leaves it running."""
        environment = self.environment() | (extra or {})
        with open(f"{self.folder}/output.log", "ab") as log:
            subprocess.Popen(
                command,
                env=environment,
                cwd="/tmp",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **as_user(user),
            )

    def wait_for(self, what, condition, limit_s=30):
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            value = condition()
            if value:
                return value
            time.sleep(0.2)
        raise RuntimeError(f"waited {limit_s} s for {what}; last refusal: {self.last_refusal}")

    def answers(self, *command):
        """Whether a program ends well; used while the other side may still be starting."""
        try:
            self.run(*command)
            return True
        except RuntimeError as error:
            self.last_refusal = error
            return False

    # Beginning and end

    def begin(self):
        self.make_users()
        self.write_settings()
        self.start_database()
        self.start_accounting()
        self.add_accounts()
        self.start_nodes()

    def make_users(self):
        for user in USERS:
            try:
                pwd.getpwnam(user)
            except KeyError:
                subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", user], check=True)
                self.users_made.append(user)

    def write_settings(self):
        folder = self.folder
        nodes, gres = [], ["AutoDetect=off"]
        for place, (node, kinds) in enumerate(NODES):
            held = ",".join(f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in kinds)
            nodes.append(
                f"NodeName={node} NodeAddr=127.0.0.1 NodeHostname={socket.gethostname()} Port={self.ports[2 + place]} "
                f"CPUs=32 Sockets=2 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=256000 Gres={held}"
            )
            os.makedirs(f"{folder}/dev/{node}")
            os.makedirs(f"{folder}/spool/{node}")
            first = 0
            for kind, count in kinds:
                # Slurm only looks whether the file is there, so that ordinary files do for GPUs.
                for number in range(first, first + count):
                    open(f"{folder}/dev/{node}/nvidia{number}", "w").close()
                typed = f" Type={kind}" if kind else ""
                numbers = f"[{first}-{first + count - 1}]"
                gres.append(f"NodeName={node} Name=gpu{typed} File={folder}/dev/{node}/nvidia{numbers}")
                first += count
        os.makedirs(f"{folder}/state")
        values = {
            "folder": folder,
            "name": NAME,
            "host": socket.gethostname(),
            "ports": self.ports,
            "tres": TRES,
            "nodes": "\n".join(nodes),
        }
        self.write("slurm.conf", SLURM_CONF.format(**values))
        self.write("gres.conf", "\n".join(gres) + "\n")
        self.write("slurmdbd.conf", SLURMDBD_CONF.format(**values), 0o600)
        with open(os.open(f"{folder}/munge.key", os.O_CREAT | os.O_WRONLY, 0o600), "wb") as key:
            key.write(secrets.token_bytes(128))

    def write(self, name, text, mode=0o644):
        path = f"{self.folder}/{name}"
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
            file.write(text)

    def start_database(self):
        data = f"{self.folder}/mariadb"
        self.run(
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={data}",
            "--user=root",
            "--skip-test-db",
            "--auth-root-authentication-method=normal",
        )
        # No data here must outlive a power cut.
        self.start(
            "mariadbd",
            "--no-defaults",
            f"--datadir={data}",
            f"--socket={self.folder}/mariadb.sock",
            "--user=root",
            f"--pid-file={self.folder}/mariadb.pid",
            f"--log-error={self.folder}/mariadb.log",
            "--skip-networking",
            "--innodb-buffer-pool-size=64M",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-lock-wait-timeout=900",
        )
        ping = ("mariadb-admin", "--no-defaults", f"--socket={self.folder}/mariadb.sock", "ping")
        self.wait_for("MariaDB", lambda: self.answers(*ping))

    def start_accounting(self):
        """munged and slurmdbd. slurmdbd adds up the hours that are over as soon as it starts."""
        folder = self.folder
        self.start(
            "munged",
            "--foreground",
            f"--socket={folder}/munge.sock",
            f"--key-file={folder}/munge.key",
            f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/munged.log",
            f"--seed-file={folder}/munge.seed",
        )
        self.wait_for("munged", lambda: os.path.exists(f"{folder}/munge.sock"))
        self.start("slurmdbd", "-D")
        self.wait_for("slurmdbd", lambda: self.answers("sacctmgr", "-n", "show", "cluster"))

    def add_accounts(self):
        self.run("sacctmgr", "-i", "add", "cluster", NAME)
        for account, parent in ACCOUNTS:
            self.run("sacctmgr", "-i", "add", "account", account, f"parent={parent}", f"cluster={NAME}")
        for user, account in MEMBERS:
            self.run("sacctmgr", "-i", "add", "user", user, f"account={account}", f"cluster={NAME}")
        self.run("sacctmgr", "-i", "add", "qos", "premium", "UsageFactor=2")
        self.run("sacctmgr", "-i", "modify", "user", *USERS, "set", "qos+=premium")

    def start_nodes(self):
        self.start("slurmctld", "-D")
        for node, _ in NODES:
            self.start_node(node)
        # Each node stands in two partitions.
        idle = ["idle"] * 2 * len(NODES)
        self.wait_for("the nodes", lambda: self.run("sinfo", "-h", "-N", "-o", "%T", check=False).split() == idle)

    def start_node(self, node):
        self.start("slurmd", "-D", "-N", node, extra={NODE_MARK: f"{self.folder}/{node}"})

    def lose_node(self, node):
        """As when its power fails: nothing that ran there has time to say so."""
        for process in self.processes(f"{NODE_MARK}={self.folder}/{node}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def processes(self, mark=None):
        """The processes of this lab: those whose environment holds its mark."""
        mark = (mark or f"{MARK}={self.folder}").encode()
        found = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(int(path.split("/")[2]))
        return found

    def stop_programs(self, but=()):
        """Ends the lab's programs, politely first. `but` names those that go on."""

        def those():
            kept = []
            for process in self.processes():
                with contextlib.suppress(OSError), open(f"/proc/{process}/comm", encoding="utf-8") as file:
                    if file.read().strip() not in but:
                        kept.append(process)
            return kept

        for kind, patience_s in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
            until = time.monotonic() + patience_s
            for process in those():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, kind)
            while those() and time.monotonic() < until:
                with contextlib.suppress(ChildProcessError):
                    while os.waitpid(-1, os.WNOHANG)[0]:
                        pass
                time.sleep(0.1)

    def clear_shared_memory(self):
        """The clock's library leaves a little where a process was killed: takes away what is ours and has no owner."""
        for path in glob.glob("/dev/shm/*faketime_*_*"):
            with contextlib.suppress(OSError):
                ours = os.stat(path).st_mtime >= self.begun_at
                if ours and not os.path.exists(f"/proc/{path.rsplit('_', 1)[1]}"):
                    os.remove(path)

    def end(self):
        """Leaves nothing behind: no process, no user, no folder."""
        self.stop_programs()
        self.clear_shared_memory()
        for user in self.users_made:
            subprocess.run(["userdel", user], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)
