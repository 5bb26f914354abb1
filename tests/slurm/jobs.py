"""Jobs of every kind that Slurm's books tell in their own way. Each is short.

Together they fill the minutes before a full hour, and some run over it.
Names of jobs say what they are for, since the names are what one sees in the exports.
"""

import time
from datetime import timedelta

MIG = "gpu:a100_3g.20gb"


class Jobs:
    def __init__(self, cluster, crossed):
        """`crossed` is the full hour that some jobs run over."""
        self.cluster = cluster
        self.crossed = crossed
        self.ids = {}

    def submit(self, user, account, name, seconds, *options, script=None):
        """Hands in a job that sleeps, or runs `script`; remembers its number by its name."""
        script = script or f"sleep {seconds}"
        said = self.cluster.run(
            "sbatch",
            "--parsable",
            f"--account={account}",
            f"--job-name={name}",
            "--output=/dev/null",
            "--time=5",
            "--mem=100",
            *options,
            f"--wrap={script}",
            user=user,
        )
        self.ids[name] = said.strip().split(";")[0]

    def state(self, name):
        return self.cluster.run("squeue", "-h", "-j", self.ids[name], "-t", "all", "-o", "%T", check=False).strip()

    def wait_for(self, name, *states):
        self.cluster.wait_for(f"job {name} to be {' or '.join(states)}", lambda: self.state(name) in states, 60)

    def control(self, *command):
        self.cluster.run("scontrol", *command)

    def run(self, look):
        """All of them. `look` is called once while many are running."""
        self.submit_that_are_touched()
        self.submit_plain()
        self.submit_to_several_nodes()
        self.submit_that_wait()
        self.suspend(look)
        self.shrink()
        self.lose_a_node()
        self.preempt()
        self.cross_the_hour()
        self.wait_for_the_end()

    def submit_that_are_touched(self):
        self.submit("carol", "nlp-infer", "suspended", 12, "--gres=gpu:1", "--nodelist=gpu03")
        self.submit("carol", "nlp-infer", "cancelled-running", 200, f"--gres={MIG}:1")

    def suspend(self, look):
        self.wait_for("suspended", "RUNNING")
        self.control("suspend", self.ids["suspended"])
        self.wait_for("cancelled-running", "RUNNING")
        # Slurm tells its books of a start with some delay.
        time.sleep(4)
        look()
        self.control("resume", self.ids["suspended"])
        self.cluster.run("scancel", self.ids["cancelled-running"], user="carol")

    def submit_plain(self):
        self.submit("alice", "physics", "whole-typed", 15, "--gres=gpu:h100:2", "--nodelist=gpu01")
        self.submit("bob", "nlp", "whole-untyped-request", 12, "--gres=gpu:2", "--nodelist=gpu02")
        self.submit("carol", "nlp-infer", "slice", 14, f"--gres={MIG}:1", "--comment=proj=42")
        self.submit("alice", "physics", "mixed-types", 7, f"--gres=gpu:h100:1,{MIG}:1", "--nodelist=gpu01")
        # A limit is whole minutes, and Slurm looks for those over it now and then.
        self.submit("alice", "physics", "over-time", 300, "--gres=gpu:1", "--nodelist=gpu03", "--time=1")
        self.submit("carol", "physics", "untyped-node", 11, "--gres=gpu:1", "--nodelist=gpu03")
        self.submit("bob", "nlp", "array", 5, "--gres=gpu:h100:1", "--array=0-3%2", "--nodelist=gpu01")
        self.submit("carol", "physics", "fails, with | and spaces", 0, "--gres=gpu:h100:1", script="sleep 4; exit 3")
        self.submit("carol", "nlp-infer", "two\nlines", 4, "--gres=gpu:h100:1")
        self.submit("bob", "nlp", "no-gpu", 5, "--cpus-per-task=4")
        self.submit("bob", "nlp", "in-a-moment", 0, "--gres=gpu:h100:1", script="true")
        self.submit("alice", "physics", "premium", 6, f"--gres={MIG}:1", "--qos=premium")
        self.submit(
            "bob",
            "nlp",
            "steps",
            0,
            "--gres=gpu:h100:1",
            "--ntasks=2",
            script="srun --ntasks=1 sleep 2; srun --ntasks=1 false; srun sleep 2",
        )
        self.submit("carol", "nlp-infer", "gpus-per-task", 6, "--ntasks=2", "--gpus-per-task=h100:1")
        self.submit("alice", "physics", "exclusive", 5, "--exclusive", "--gres=gpu:h100:1", "--nodelist=gpu02")
        # Not a batch job: the command itself is the first step.
        self.cluster.start(
            "srun",
            "--account=nlp-infer",
            "--job-name=interactive",
            f"--gres={MIG}:1",
            "--mem=100",
            "--time=5",
            "sleep",
            "6",
            user="carol",
        )

    def submit_to_several_nodes(self):
        self.submit("alice", "physics", "two-nodes", 6, "--nodes=2", "--nodelist=gpu01,gpu02", "--gres=gpu:h100:1")
        self.submit("bob", "nlp", "gpus-anywhere", 6, "--gpus=h100:5", "--nodes=2")
        # Two of the nodes give a typed GPU, one gives one without type.
        self.submit("alice", "physics", "shrinks", 14, "--nodes=3", "--gres=gpu:1")
        said = self.cluster.run(
            "sbatch",
            "--parsable",
            "--account=nlp",
            "--job-name=heterogeneous",
            "--output=/dev/null",
            "--time=5",
            "--mem=100",
            "--nodelist=gpu01",
            "--gres=gpu:h100:1",
            ":",
            "--mem=100",
            "--nodelist=gpu02",
            "--gres=gpu:h100:1",
            "--wrap=sleep 6",
            user="bob",
        )
        self.ids["heterogeneous"] = said.strip()

    def submit_that_wait(self):
        """Slurm's books know a job from when it may start. Only the first of these got so far."""
        self.submit("bob", "nlp", "cancelled-waiting", 5, "--gres=gpu:h100:4", "--nodelist=gpu01")
        self.submit(
            "bob", "nlp", "cancelled-dependent", 5, "--gres=gpu:h100:1", f"--dependency=afterok:{self.ids['over-time']}"
        )
        self.submit("bob", "nlp", "cancelled-held", 5, "--gres=gpu:h100:1", "--hold")
        self.submit("bob", "nlp", "cancelled-begin-later", 5, "--gres=gpu:h100:1", "--begin=now+2hours")
        for name in ("cancelled-waiting", "cancelled-dependent", "cancelled-held", "cancelled-begin-later"):
            self.cluster.run("scancel", self.ids[name], user="bob")

    def lose_a_node(self):
        """A node goes away under two jobs: one may start again, one may not."""
        self.submit("alice", "physics", "node-lost", 30, "--no-requeue", "--gres=gpu:h100:1", "--nodelist=gpu02")
        self.submit("bob", "nlp", "node-lost-again", 8, "--gres=gpu:h100:1", "--nodelist=gpu02")
        self.wait_for("node-lost", "RUNNING")
        self.wait_for("node-lost-again", "RUNNING")
        time.sleep(2)
        self.cluster.lose_node("gpu02")
        self.control("update", "nodename=gpu02", "state=down", "reason=Xid 79 | fell off the bus")
        time.sleep(2)
        self.cluster.start_node("gpu02")
        self.control("update", "nodename=gpu02", "state=resume")

    def shrink(self):
        """A job gives back one of its three nodes while it runs, and then another."""
        self.wait_for("shrinks", "RUNNING")
        for nodes in (2, 1):
            time.sleep(3)
            self.control("update", f"jobid={self.ids['shrinks']}", f"numnodes={nodes}")

    def preempt(self):
        """Two low jobs fill a node; a better one takes it. One of the low ones starts again, one ends there."""
        self.submit("bob", "nlp", "preempted", 8, "--partition=low", "--gres=gpu:h100:2", "--nodelist=gpu01")
        self.submit(
            "bob",
            "nlp",
            "preempted-for-good",
            200,
            "--partition=low",
            "--no-requeue",
            "--gres=gpu:h100:2",
            "--nodelist=gpu01",
        )
        self.wait_for("preempted", "RUNNING")
        self.wait_for("preempted-for-good", "RUNNING")
        time.sleep(3)
        self.submit("alice", "physics", "preempts", 6, "--gres=gpu:h100:4", "--nodelist=gpu01")
        self.wait_for("preempts", "RUNNING")

    def cross_the_hour(self):
        over = self.crossed
        if self.cluster.now() > over - timedelta(seconds=22):
            raise RuntimeError("the jobs before the full hour took too long: is this machine very busy?")
        self.cluster.sleep_until(over - timedelta(seconds=22))
        self.submit("alice", "physics", "crosses", 34, "--gres=gpu:h100:2", "--nodelist=gpu01")
        self.submit("carol", "nlp-infer", "crosses-slice", 31, f"--gres={MIG}:1")
        self.submit("bob", "nlp", "crosses-started-again", 20, "--gres=gpu:h100:1", "--nodelist=gpu01")
        self.submit("carol", "physics", "crosses-suspended", 20, "--gres=gpu:1", "--nodelist=gpu03")
        for name in ("crosses", "crosses-slice", "crosses-started-again", "crosses-suspended"):
            self.wait_for(name, "RUNNING")
        self.cluster.sleep_until(over - timedelta(seconds=9))
        self.control("requeue", self.ids["crosses-started-again"])
        self.control("suspend", self.ids["crosses-suspended"])
        self.cluster.sleep_until(over + timedelta(seconds=7))
        self.control("resume", self.ids["crosses-suspended"])

    def wait_for_the_end(self):
        self.cluster.wait_for("all jobs to end", lambda: not self.cluster.run("squeue", "-h"), 90)
