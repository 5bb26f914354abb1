#!/usr/bin/env python3
"""What the job lists in this folder hold, counted apart from the product.

    python3 tests/data/expected.py                  counts the files here and writes expected.json
    python3 tests/data/expected.py --shared DIR     counts the files of the shared data folder too, which are not copied here
    python3 tests/data/expected.py --check          writes nothing; exit code 1 where expected.json is not what was counted

Without --shared the entries whose name begins with "shared:" are kept as they are. Standard library only.

The rules
- An allocation record is a line that is no step and no array record that still waits. A step's JobID has a dot.
- An attempt is one (cluster, JobIDRaw, Start). Told twice, the later End counts. Where JobIDRaw is missing, JobID stands in.
- never: no Start, or no length. In forms that come from the controller, a PENDING job's start is only planned: never.
- running: a Start, and no End or a state RUNNING, SUSPENDED or COMPLETING. held: both, and End after Start.
- GPUs come from what was allocated, never from what was asked for. gres/gpu:TYPE counts by type; what gres/gpu has beyond
  their sum is of type "gpu". gres/shard is told apart. gres/gpumem and gres/gpuutil are no counts.
- GPU-seconds are (End − Start) × GPUs. Time in which a job was suspended is included.
Local times without an offset are taken as UTC, so a list that crosses a change of clocks would differ in its own zone.
"""
import argparse
import calendar
import collections
import csv
import datetime
import gzip
import io
import json
import pathlib
import re
import sys
import tarfile
from fractions import Fraction

sys.dont_write_bytecode = True
from sources import HERE, SHARED  # the table of files, beside this script

FOLDER = pathlib.Path(__file__).resolve().parent
WANTED = ["JobIDRaw", "Cluster", "AllocTRES", "Start", "End", "Elapsed", "Suspended", "State", "User", "Account", "Submit",
          "Partition", "QOS", "NodeList", "JobName"]
GOES_ON = {"RUNNING", "SUSPENDED", "COMPLETING"}
UNKNOWN = {"", "Unknown", "None", "N/A", "NONE", "(null)", "0"}


# Times ---------------------------------------------------------------------------------------------------------------

def instant(text):
    """Seconds since 1970 of an instant as accounting tools write it, and which kind it is."""
    if text is None or text in UNKNOWN:
        return None, None
    found = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(Z|[+-]\d\d:?\d\d)?", text)
    if not found:
        raise ValueError(f"{text!r} is no instant")
    seconds = calendar.timegm(tuple(int(part) for part in found.groups()[:6]))
    offset = found.group(7)
    if offset is None:
        return seconds, "naive"
    if offset != "Z":
        sign = -1 if offset[0] == "-" else 1
        seconds -= sign * (int(offset[1:3]) * 3600 + int(offset[-2:]) * 60)
    return seconds, "offset"


def length(text):
    """Seconds of [days-]hours:minutes:seconds, or of a whole number."""
    if text is None or text == "":
        return None
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    return int(days or 0) * 86400 + sum(part * 60 ** place for place, part in enumerate(reversed(parts)))


def written(seconds, kind):
    if seconds is None:
        return None
    text = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return text if kind == "naive" else text + "Z"


def exact(number):
    """A whole number, or the text of a decimal one."""
    number = Fraction(number)
    return number.numerator if number.denominator == 1 else f"{float(number):.6f}"


# GPUs ----------------------------------------------------------------------------------------------------------------

def tres(text):
    """The entries of a TRES string."""
    pairs = (entry.split("=", 1) for entry in text.split(",") if "=" in entry)
    return {name: count for name, count in pairs}


def gpus(entries):
    """GPUs by type, and shards, of TRES entries."""
    typed, total, shards = {}, 0, 0
    for name, count in entries.items():
        if name == "gres/gpu":
            total = int(count)
        elif name.startswith("gres/gpu:"):
            typed[name[len("gres/gpu:"):]] = int(count)
        elif name == "gres/shard" or name.startswith("gres/shard:"):
            shards += int(count)
    rest = total - sum(typed.values())
    if rest > 0:
        typed["gpu"] = typed.get("gpu", 0) + rest
    return {name: count for name, count in typed.items() if count > 0}, shards


def detail(entries):
    """GPUs of gres_detail, one text a node: gpu:h100:4(IDX:0-3)."""
    found = collections.Counter()
    for name, count in re.findall(r"gpu:(?:([^:,()]+):)?(\d+)(?=[,(]|$)", ",".join(entries)):
        found[name or "gpu"] += int(count)
    return dict(found)


# Reading -------------------------------------------------------------------------------------------------------------

def unpacked(path):
    data = path.read_bytes()
    if path.name.endswith(".tar.gz"):
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            return archive.extractfile(archive.getmembers()[0]).read().decode()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


def rows(text, delimiter, heading):
    """Rows of a table that quotes nothing: (first line, last line, cells). Lines that are too short are joined with the
    next ones where that gives just the wanted number of cells: a line break stood inside a field."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    at = 0
    if heading is None:
        heading, at = lines[0].split(delimiter), 1
    found = []
    while at < len(lines):
        line, last = lines[at], at
        while line and len(line.split(delimiter)) < len(heading) and last + 1 < len(lines):
            longer = line + "\n" + lines[last + 1]
            if not lines[last + 1] or len(longer.split(delimiter)) > len(heading):
                break
            line, last = longer, last + 1
        if len(line.split(delimiter)) < len(heading):
            line, last = lines[at], at
        if line:
            found.append((at + 1, last + 1, line.split(delimiter)))
        at = last + 1
    return heading, found


def record(line, fields, names):
    """A record of a table whose columns, here in small letters, are named as sacct names them."""
    get = {name.lower(): text for name, text in fields.items()}.get
    start, kind = instant(get("start"))
    end, _ = instant(get("end"))
    job, raw = get("jobid"), get("jobidraw")
    allocated = get("alloctres")
    counts, shards = gpus(tres(allocated or ""))
    return {
        "line": line, "id": job, "raw": raw or job, "cluster": get("cluster") or "", "state": get("state").split(" by ")[0],
        "start": start, "end": end, "kind": kind, "step": "." in job, "steps": 0,
        "waits": "_[" in job and start is None, "gpus": counts if "alloctres" in names else None,
        "shards": shards, "elapsed": length(get("elapsedraw") or get("elapsed")), "suspended": length(get("suspended")),
    }


def read_table(text, options):
    delimiter = options.get("delimiter", "|")
    heading, found = rows(text, delimiter, options.get("heading"))
    names = {name.lower() for name in heading}
    records, wrong, mended, glued = [], [], [], []
    for first, last, cells in found:
        if last > first:
            glued.append([first, last])
        surplus = len(cells) - len(heading)
        if surplus == 0:
            records.append(record(first, dict(zip(heading, cells)), names))
            continue
        wrong.append([first, f"{len(cells)} columns, not {len(heading)}"])
        if surplus > 0 and "JobName" in heading:
            at = heading.index("JobName")
            cells = cells[:at] + [delimiter.join(cells[at:at + surplus + 1])] + cells[at + surplus + 1:]
            mended.append(record(first, dict(zip(heading, cells)), names))
    twice = sorted(name for name, count in collections.Counter(heading).items() if count > 1)
    missing = [name for name in WANTED if name.lower() not in names and name.lower() + "raw" not in names]
    lines = sum(last - first + 1 for first, last, _ in found)
    return records, wrong, {"lines": lines, "missing": missing, "mended": mended, "glued": glued, "twice": twice}


def read_sonar(text, _):
    """Sonar's CSV: each cell is name=value, empty ones are left out."""
    records, names = [], set()
    for number, cells in enumerate(csv.reader(io.StringIO(text)), 1):
        fields = dict(cell.split("=", 1) for cell in cells)
        names |= {name.lower() for name in fields}
        records.append(record(number, fields, {"alloctres"}))
    missing = [name for name in WANTED if name.lower() not in names and name.lower() + "raw" not in names]
    return records, [], {"lines": len(records), "missing": missing}


def number(value):
    """A number of Slurm's JSON: plain, or {set, infinite, number}; 0 and null mean that there is none."""
    if isinstance(value, dict):
        value = value["number"] if value["set"] and not value["infinite"] else None
    return value or None


def state(value):
    return value if isinstance(value, str) else "+".join(value)


def read_accounting_json(text, _):
    """sacct --json, and slurmrestd's slurmdb jobs."""
    records = []
    for place, job in enumerate(json.loads(text)["jobs"], 1):
        time = job["time"]
        entries = {f"{entry['type']}/{entry['name']}": entry["count"] for entry in job["tres"]["allocated"] if entry["name"]}
        counts, shards = gpus(entries)
        start = number(time["start"])
        records.append({
            "line": place, "id": str(job["job_id"]), "raw": str(job["job_id"]), "cluster": job["cluster"],
            "state": state(job["state"]["current"]), "start": start, "end": number(time["end"]), "kind": "unix", "step": False,
            "steps": len(job["steps"]), "waits": bool(job["array"].get("task")) and start is None, "gpus": counts,
            "shards": shards, "elapsed": time["elapsed"], "suspended": time["suspended"],
        })
    return records, [], {"lines": len(records), "missing": []}


def read_controller_json(text, _):
    """squeue --json, and slurmrestd's slurm jobs: what the controller knows now."""
    records = []
    for place, job in enumerate(json.loads(text)["jobs"], 1):
        counts, shards = gpus(tres(job["tres_alloc_str"]))
        now, start = state(job["job_state"]), number(job["start_time"])
        planned = now.startswith("PENDING")
        records.append({
            "line": place, "id": str(job["job_id"]), "raw": str(job["job_id"]), "cluster": job["cluster"], "state": now,
            "start": None if planned else start, "end": None if planned else number(job["end_time"]), "kind": "unix",
            "step": False, "steps": 0, "waits": bool(job.get("array_task_string")) and planned, "gpus": counts,
            "shards": shards, "elapsed": None, "suspended": None, "detail": detail(job["gres_detail"]),
        })
    return records, [], {"lines": len(records), "missing": ["Elapsed"]}


def read_squeue_text(text, options):
    """squeue -O with a delimiter and no heading."""
    heading, found = rows(text, options["delimiter"], options["heading"])
    records = []
    for first, _, cells in found:
        job = dict(zip(heading, cells))
        planned = job["STATE"] == "PENDING"
        start, _ = instant(job["STARTTIME"])
        counts, shards = gpus(tres(job["TRES-ALLOC"]))
        records.append({
            "line": first, "id": job["JOBARRAYID"], "raw": job["JOBID"], "cluster": "", "state": job["STATE"],
            "start": None if planned else start, "end": None, "kind": "naive", "step": False, "steps": 0,
            "waits": "_[" in job["JOBARRAYID"] and planned, "gpus": counts, "shards": shards, "elapsed": None,
            "suspended": None,
        })
    return records, [], {"lines": len(records), "missing": ["Cluster", "End", "Suspended"]}


def read_scontrol(text, _):
    """scontrol show job -o: NAME=value by spaces; values may hold spaces, which none of the fields read here does."""
    records = []
    for place, line in enumerate(filter(None, text.split("\n")), 1):
        job = dict(re.findall(r"(?:^| )([A-Za-z:/]+)=([^ ]*)", line))
        planned = job["JobState"] == "PENDING"
        start, kind = instant(job["StartTime"])
        counts, shards = gpus(tres(job["AllocTRES"]))
        records.append({
            "line": place, "id": job["JobId"], "raw": job["JobId"], "cluster": "", "state": job["JobState"],
            "start": None if planned else start, "end": None, "kind": kind, "step": False, "steps": 0, "waits": False,
            "gpus": counts, "shards": shards, "elapsed": None, "suspended": None,
        })
    return records, [], {"lines": len(records), "missing": ["Cluster"]}


def read_trace(text, options):
    """A CSV trace: options name its columns; times are numbers of a unit, or local times."""
    records, wrong = [], []
    unit = options.get("unit", 1)

    def at(cell):
        if cell == "":
            return None
        # Some traces print a computed number: 32709.000000000004. Microseconds are kept, the rest is noise.
        return Fraction(round(Fraction(cell) * 1_000_000), 1_000_000) * unit

    for place, row in enumerate(csv.DictReader(io.StringIO(text)), 2):
        local = ":" in row[options["start"]]
        start = instant(row[options["start"]])[0] if local else at(row[options["start"]])
        if "end" in options:
            end = at(row[options["end"]])
        else:
            end = None if start is None else start + at(row[options["length"]])
        count = options["gpus"] if isinstance(options["gpus"], int) else int(row[options["gpus"]])
        key = row[options["id"]] if "id" in options else str(place)
        records.append({
            "line": place, "id": key, "raw": key, "cluster": "", "state": row[options["state"]] if "state" in options else "",
            "start": start, "end": end, "kind": "naive" if local else "relative", "step": False, "steps": 0, "waits": False,
            "gpus": {"gpu": count} if count else {}, "shards": 0, "elapsed": None, "suspended": None,
            "thousandths": int(row[options["milli"]]) if "milli" in options else None,
            "noise": not local and any(
                re.search(r"\.\d{6}\d*[1-9]", row[options[name]]) for name in ("start", "end") if name in options),
        })
    return records, wrong, {"lines": len(records), "missing": options.get("missing", [])}


READERS = {"table": read_table, "sonar": read_sonar, "accounting": read_accounting_json, "controller": read_controller_json,
           "squeue": read_squeue_text, "scontrol": read_scontrol, "trace": read_trace}


# Counting ------------------------------------------------------------------------------------------------------------

def fate(record):
    if record["start"] is None:
        return "never"
    if record["end"] is None or record["state"].split("+")[0] in GOES_ON:
        return "running"
    return "held" if record["end"] > record["start"] else "never"


def attempts(records):
    """One record an attempt; records without a start stand for themselves."""
    kept = {}
    for record in records:
        key = (record["cluster"], record["raw"], record["start"])
        if record["start"] is None:
            key = ("never", record["line"])
        other = kept.get(key)
        if other is None or (record["end"] or -1) > (other["end"] or -1):
            kept[key] = record
    return list(kept.values())


def overlaps(records):
    """Pairs of attempts of one raw id that held GPUs at the same time."""
    found = []
    held = sorted((r for r in attempts(records) if fate(r) == "held"), key=lambda r: (r["cluster"], r["raw"], r["start"]))
    for one, next_one in zip(held, held[1:]):
        if (one["cluster"], one["raw"]) == (next_one["cluster"], next_one["raw"]) and next_one["start"] < one["end"]:
            found.append((one["cluster"], one["raw"], one["start"], next_one["start"]))
    return found


def gpu_seconds(held):
    sums = collections.Counter()
    for record in held:
        for name, count in (record["gpus"] or {}).items():
            sums[name] += count * (record["end"] - record["start"])
    return {name: exact(sums[name]) for name in sorted(sums)}, exact(sum(sums.values()))


def clock_differs(record):
    """Whether Elapsed and Suspended do not make up the time from start to end."""
    if fate(record) != "held" or record["elapsed"] is None:
        return None
    whole, told = record["end"] - record["start"], record["elapsed"] + (record["suspended"] or 0)
    return None if whole == told else [record["line"], record["raw"], whole, record["elapsed"], record["suspended"]]


def counted(form, options, records, wrong, about):
    allocations = [record for record in records if not record["step"] and not record["waits"]]
    single = attempts(allocations)
    by_fate = {name: [record for record in single if fate(record) == name] for name in ("held", "running", "never")}
    held = by_fate["held"]
    by_type, total = gpu_seconds(held)
    kinds = sorted({record["kind"] for record in allocations or records if record["start"] is not None})
    kind = kinds[0] if len(kinds) == 1 else ("none" if not kinds else "mixed")
    began = [record["start"] for record in held + by_fate["running"]]
    ended = [record["end"] for record in held]
    show = exact if kind == "relative" else (lambda seconds: written(seconds, kind))
    result = {
        "form": form, "lines": about["lines"], "records": len(records),
        "steps": sum(record["step"] for record in records) + sum(record["steps"] for record in records),
        "waiting_array_records": sum(record["waits"] for record in records), "allocation_records": len(allocations),
        "attempts": len(single), "running": len(by_fate["running"]), "never": len(by_fate["never"]),
        "running_with_gpus": sum(bool(record["gpus"]) for record in by_fate["running"]),
        "held_with_gpus": sum(bool(record["gpus"]) for record in held),
        "held_without_gpus": sum(record["gpus"] == {} for record in held),
        "held_gpus_not_told": sum(record["gpus"] is None for record in held),
        "unreadable": wrong, "gpu_seconds": total, "gpu_seconds_by_type": by_type,
        "distinct_raw_ids": len({(record["cluster"], record["raw"]) for record in allocations}),
        "first_start": show(min(began)) if began else None, "last_end": show(max(ended)) if ended else None,
        "states": dict(sorted(collections.Counter(record["state"] for record in allocations if record["state"]).items())),
        "times": kind, "clock_differs": [found for found in map(clock_differs, allocations) if found],
        "missing": about["missing"], "loses": options.get("loses", ""),
    }
    if "note" in options:
        result["note"] = options["note"]
    for name, key in (("glued", "lines_joined"), ("twice", "heading_repeats")):
        if about.get(name):
            result[key] = about[name]
    if any(record["shards"] for record in allocations):
        result["shards"] = sum(record["shards"] for record in allocations)
    if about.get("mended"):
        whole = counted(form, {}, records + about["mended"], [], {"lines": about["lines"], "missing": []})
        result["if_surplus_is_in_the_name"] = {name: whole[name] for name in (
            "allocation_records", "held_with_gpus", "gpu_seconds", "gpu_seconds_by_type", "steps")}
    noisy = [record for record in held + by_fate["running"] if record.get("noise") and record["gpus"]]
    if noisy:
        # A reader that refuses what is finer than a microsecond refuses these, whose GPU-seconds are then missing.
        result["with_gpus_and_times_finer_than_a_microsecond"] = {
            "held": sum(fate(record) == "held" for record in noisy),
            "running": sum(fate(record) == "running" for record in noisy),
            "gpu_seconds": gpu_seconds([record for record in noisy if fate(record) == "held"])[1]}
    if form == "controller":
        result["gpus_in_gres_detail"] = [[record["raw"], record["detail"]] for record in allocations if record["detail"]]
    if "milli" in options:
        part = [record for record in held if record["gpus"] and record["thousandths"] not in (None, 1000)]
        whole = [record for record in held if record["gpus"] and record["thousandths"] == 1000]
        result["held_on_a_fraction"] = len(part)
        result["held_on_whole_gpus"] = len(whole)
        result["gpu_seconds_whole_gpus_only"] = gpu_seconds(whole)[1]
        result["gpu_seconds_with_fractions"] = exact(sum(
            Fraction(record["thousandths"], 1000) * record["gpus"]["gpu"] * (record["end"] - record["start"])
            for record in held if record["gpus"]))
    return result


def tres_strings(path):
    """The TRES strings with their right counts: the rule above must agree with each."""
    for row in csv.DictReader(path.open(), delimiter="\t", quoting=csv.QUOTE_NONE):
        counts, _ = gpus(tres(row["tres"]))
        told = dict(pair.split("=") for pair in row["typed"].split(";")) if row["typed"] else {}
        assert sum(counts.values()) == int(row["gpus_total"]), row
        assert {name: int(count) for name, count in told.items()} == {n: c for n, c in counts.items() if n != "gpu"}, row


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--shared", type=pathlib.Path, help="the folder that holds the shared data's slurm and traces")
    arguments.add_argument("--check", action="store_true", help="compare with expected.json, write nothing")
    given = arguments.parse_args()
    target = FOLDER / "expected.json"
    before = json.loads(target.read_text()) if target.exists() else {}
    result = {name: entry for name, entry in before.items() if name.startswith("shared:")}
    tres_strings(FOLDER / "slurm/tres_strings.tsv")
    root = FOLDER.parent.parent
    work = [(name, (root if name.startswith("docs/") else FOLDER) / name, form, options) for name, form, options in HERE]
    if given.shared:
        result = {}
        work += [("shared:" + name, given.shared / name, form, options) for name, form, options in SHARED]
    sarc = []
    for name, path, form, options in work:
        records, wrong, about = READERS[form](unpacked(path), options)
        result[name] = counted(form, options, records, wrong, about)
        if name.startswith("shared:slurm/sarc/"):
            sarc += [{**record, "line": len(sarc) + place} for place, record in enumerate(records)]
    # The same jobs are told again by later exports: together they must not count twice.
    if sarc:
        assert not overlaps(sarc), overlaps(sarc)
        together = counted("accounting", {}, sarc, [], {"lines": len(sarc), "missing": []})
        result["shared:slurm/sarc/*.json together"] = together
    text = json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    # Short lists on one line each, so that a difference can be read.
    text = re.sub(r"\[\n\s+([^\[\]{}]*?)\n\s+\]", lambda m: "[" + re.sub(r"\s*\n\s*", " ", m.group(1)) + "]", text)
    if given.check:
        sys.exit(0 if text == target.read_text() else "expected.json is not what was counted")
    target.write_text(text)


if __name__ == "__main__":
    main()
