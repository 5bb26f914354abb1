"""What people export from Slurm, written to a folder: the tools' own words, but for the lab's folder."""

import os
import socket
from datetime import timedelta

from cluster import NAME, TRES

FIELDS = (
    "JobID,JobIDRaw,Cluster,JobName,Account,User,UID,Partition,QOS,State,ExitCode,DerivedExitCode,Submit,Eligible,"
    "Start,End,ElapsedRaw,Suspended,AllocTRES,ReqTRES,NNodes,NCPUS,NodeList,TimelimitRaw,Reason,Comment"
)

# File, options of sacct. 0x1f is a character that no name of a job may hold, so that this form cannot be misread.
FORMS = [
    ("sacct-1f.txt", ["-P", "-D", "-X", "--delimiter=\x1f", f"--format={FIELDS}"]),
    ("sacct.txt", ["-P", "-D", "-X", f"--format={FIELDS}"]),
    ("sacct-steps-1f.txt", ["-P", "-D", "--delimiter=\x1f", f"--format={FIELDS}"]),
    ("sacct-steps.txt", ["-P", "-D", f"--format={FIELDS}"]),
    # Without -D only the last run of a job that was started again is told.
    ("sacct-no-duplicates.txt", ["-P", "-X", f"--format={FIELDS}"]),
    ("sacct.json", ["--json", "-D"]),
]
PROGRAMS = [
    ("slurmctld", "-V"),
    ("slurmd", "-V"),
    ("slurmdbd", "-V"),
    ("sacct", "-V"),
    ("mariadbd", "--no-defaults", "--version"),
    ("munged", "--version"),
]


class Exports:
    def __init__(self, cluster, folder, crossed):
        self.cluster = cluster
        self.folder = folder
        self.hours = [crossed - timedelta(hours=1), crossed]
        os.makedirs(folder, exist_ok=True)
        # Old exports must not pass for new ones.
        for name in os.listdir(folder):
            if name.startswith(("sacct", "sreport-")):
                os.remove(f"{folder}/{name}")

    def write(self, name, text):
        text = text.replace(self.cluster.folder, "/lab")
        with open(f"{self.folder}/{name}", "w", encoding="utf-8", newline="") as file:
            file.write(text)

    def window(self):
        return [f"{moment:%Y-%m-%dT%H:%M:%S}" for moment in (self.hours[0], self.hours[-1] + timedelta(hours=1))]

    def sacct(self, options):
        begins, ends = self.window()
        return self.cluster.run("sacct", "-a", "-S", begins, "-E", ends, *options)

    def sreport(self, hour):
        return self.cluster.run(
            "sreport",
            "-P",
            "-t",
            "seconds",
            "cluster",
            "AccountUtilizationByUser",
            "-T",
            TRES,
            f"start={hour:%Y-%m-%dT%H:%M:%S}",
            f"end={hour + timedelta(hours=1):%Y-%m-%dT%H:%M:%S}",
        )

    def has_sums(self):
        return all("gres/gpu" in self.sreport(hour) for hour in self.hours)

    def while_running(self):
        """What a nightly export sees of jobs that have no end yet."""
        self.write("sacct-running-1f.txt", self.sacct(FORMS[0][1]))

    def before_the_next_hour(self):
        """What slurmdbd added up by itself when the hour was over, while jobs ran on."""
        self.write(f"sreport-{self.hours[0]:%H}-at-once.txt", self.sreport(self.hours[0]))

    def at_the_end(self):
        for name, options in FORMS:
            self.write(name, self.sacct(options))
        for hour in self.hours:
            self.write(f"sreport-{hour:%H}.txt", self.sreport(hour))
        begins, ends = self.window()
        events = self.cluster.run("sacctmgr", "-P", "show", "event", f"start={begins}", f"end={ends}")
        self.write("sacctmgr-event.txt", events)
        self.write("versions.txt", self.versions())
        for name in ("slurm.conf", "gres.conf"):
            with open(f"{self.cluster.folder}/{name}", encoding="utf-8") as file:
                self.write(name, file.read().replace(socket.gethostname(), "labhost"))

    def versions(self):
        with open("/etc/os-release", encoding="utf-8") as file:
            system = next(line.split("=", 1)[1].strip().strip('"') for line in file if line.startswith("PRETTY_NAME="))
        said = [self.cluster.run(*command).strip().splitlines()[0].split("/")[-1] for command in PROGRAMS]
        lines = [f"{command[0]}: {words}" for command, words in zip(PROGRAMS, said)]
        return "\n".join([f"system: {system}", f"cluster: {NAME}", *lines]) + "\n"
