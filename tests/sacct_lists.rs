//! Real lists of Slurm's accounting, each imported and compared with what `tests/data/expected.py` counted apart.

use std::collections::BTreeMap;
use std::path::Path;

use gpuledger::import::InputFile;
use gpuledger::import::job_record::{Held, JobList};
use gpuledger::import::sacct::{SacctList, SacctOptions};
use gpuledger::workflows::import_jobs::Imported;
use gpuledger::workflows::usage_report::{Dimension, usage_report};
use gpuledger_domain::ids::ClusterName;
use gpuledger_domain::pricing::PriceBook;
use gpuledger_domain::time::{Instant, Interval, SECOND_US};
use gpuledger_domain::units::Fraction;
use serde_json::Value;

use crate::support::sacct::{import, utc};
use crate::support::{Books, project_file};

/// The fields of lists without a heading.
const HEADLESS: [(&str, &str); 6] = [
    (
        "sonar/",
        "JobID,JobIDRaw,User,Account,State,Start,End,AveCPU,AveDiskRead,AveDiskWrite,AveRSS,AveVMSize,ElapsedRaw,ExitCode,Layout,MaxRSS,MaxVMSize,MinCPU,ReqCPUS,ReqMem,ReqNodes,Reservation,Submit,Suspended,SystemCPU,TimelimitRaw,UserCPU,NodeList,Partition,AllocTRES,Priority,JobName",
    ),
    (
        "xdmod",
        "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname",
    ),
    (
        "ceems",
        "JobID,Partition,QOS,Account,Group,GID,User,UID,Submit,Start,End,Elapsed,ElapsedRaw,ExitCode,State,AllocTRES,NodeList,JobName,WorkDir",
    ),
    ("noheader-short", "JobID,Account,User,State,Elapsed,AllocTRES,Start,End"),
    (
        "squeue-output",
        "TRES-PER-NODE,MINCPUS,JOBARRAYID,JOBID,NAME,TIMELIMIT,MINMEMORY,COMMAND,PRIORITY,STATE,USERNAME,NUMCPUS,NUMNODES,TIMELEFT,TIMEUSED,NODELIST,DEPENDENCY,EXCNODES,STARTTIME,SUBMITTIME,ELIGIBLETIME,ACCRUETIME,PENDINGTIME,COMMENT,PARTITION,ACCOUNT,QOS,REASON,TRES-ALLOC,RESERVATION,REQUEUE,FEATURE,RESTARTCNT,SCHEDNODES,LASTSCHEDEVAL",
    ),
    ("scontrol_resource1", ""),
];

/// Lists that are refused as a whole, and why: they do not tell what was held.
const LOSSY: [(&str, &str); 4] = [
    (
        "sacct-local/sacct-truncate-window.txt",
        "AllocTRES (how many GPUs were held: without it that is unknown, not zero)",
    ),
    ("sacct-local/sacct-window-no-truncate.txt", "AllocTRES (how many GPUs were held"),
    ("slurm/gcm/sample-sacct-output-midnight-edge-case.txt", "AllocTRES (how many GPUs were held"),
    ("sacct-local/sacct-default-table.txt", "it cuts names short"),
];

/// Lists of one job that ran and asked for GPUs by its command line, of which its accounting tells none.
const ASKED_ONLY: [&str; 10] = [
    "24.05/0.0.41/slurmdb-job-gpus-archived.json",
    "24.05/0.0.41/slurmdb-job-gpus-completed.json",
    "24.11/0.0.42/slurmdb-job-gpus-archived.json",
    "24.11/0.0.42/slurmdb-job-gpus-completed.json",
    "24.11/0.0.42/slurmdb-job-gpus-multi-nodes.json",
    "24.11/0.0.42/slurmdb-job-gpus-multi-types.json",
    "25.05/0.0.43/slurmdb-job-gpus-archived.json",
    "25.05/0.0.43/slurmdb-job-gpus-completed.json",
    "25.05/0.0.43/slurmdb-job-gpus-multi-nodes.json",
    "25.05/0.0.43/slurmdb-job-gpus-multi-types.json",
];

fn options(name: &str, has_cluster: bool) -> SacctOptions {
    let fields = HEADLESS.iter().find(|(part, fields)| {
        name.contains(part) && !fields.is_empty() && !name.contains("sacctd") && !name.contains("scontrol")
    });
    SacctOptions {
        cluster: ClusterName::parse("c").ok().filter(|_| !has_cluster),
        zone: Some("UTC".into()),
        delimiter: name.contains("squeue-output").then(|| "|#".into()),
        fields: fields.map(|(_, fields)| fields.split(',').map(str::to_owned).collect()),
    }
}

/// Seconds × GPUs by type of what ended, and of what still ran, as the reader gives them.
fn read_apart(list: &SacctList, file: &InputFile) -> (BTreeMap<String, i64>, BTreeMap<String, i64>) {
    let (mut ended, mut running) = (BTreeMap::new(), BTreeMap::new());
    for record in list.open(file).unwrap().flatten() {
        let (sums, length_us) = match record.held {
            Held::Ended(interval) => (&mut ended, interval.length_us()),
            Held::Running { start, until: Some(until) } => (&mut running, until.micros() - start.micros()),
            _ => continue,
        };
        for grant in record.grants {
            *sums.entry(grant.sku.to_string()).or_insert(0) += length_us / SECOND_US * i64::from(grant.count);
        }
    }
    (ended, running)
}

fn instants(entry: &Value, name: &str) -> Instant {
    let text = entry[name].as_str().unwrap_or("2020-01-01T00:00:00");
    Instant::parse(&format!("{}Z", text.trim_end_matches('Z'))).unwrap()
}

/// GPU-seconds by type in the books.
fn in_books(books: &Books, from: Instant, to: Instant) -> BTreeMap<String, i64> {
    let interval = Interval::new(from, from.max(to).plus_micros(400 * 86_400 * SECOND_US).unwrap()).unwrap();
    let rows = usage_report(&mut books.db(), &utc(), &PriceBook::default(), interval, &[Dimension::Sku]).unwrap();
    let seconds = |us: Fraction| i64::try_from(us.over(Fraction::whole(SECOND_US.into())).unwrap().rounded()).unwrap();
    rows.into_iter().map(|row| (row.key[0].clone(), seconds(row.instance_us))).collect()
}

fn by_type(entry: &Value) -> BTreeMap<String, i64> {
    let types = entry["gpu_seconds_by_type"].as_object().into_iter().flatten();
    types.map(|(kind, seconds)| (kind.clone(), seconds.as_i64().unwrap())).collect()
}

fn sum(a: &BTreeMap<String, i64>, b: &BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    let mut sum = a.clone();
    b.iter().for_each(|(kind, seconds)| *sum.entry(kind.clone()).or_insert(0) += seconds);
    sum.retain(|_, seconds| *seconds != 0);
    sum
}

/// Imports one list and compares; what differs, in words.
fn compare(name: &str, path: &Path, entry: &Value) -> Vec<String> {
    let missing: Vec<&str> = entry["missing"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let file = InputFile::open(path.to_str().unwrap()).unwrap();
    let has_cluster = !missing.contains(&"Cluster");
    let list = match SacctList::of_file(&file, options(name, has_cluster)) {
        Ok(list) => list,
        Err(error) => {
            let lossy = LOSSY.iter().find(|(lossy, _)| *lossy == name);
            return match lossy {
                Some((_, why)) if error.to_string().contains(why) => Vec::new(),
                _ => vec![format!("{name}: refused: {error}")],
            };
        }
    };
    // A name that holds the delimiter is mended; the counts apart say what that comes to.
    let mended =
        if entry["if_surplus_is_in_the_name"].is_object() { &entry["if_surplus_is_in_the_name"] } else { entry };
    let books = Books::sqlite().migrated("UTC");
    let (Imported { counts, .. }, refused) = import(&books, &list, &file, "p");
    let (_, running) = read_apart(&list, &file);
    let wanted = sum(&by_type(mended), &running);
    let mut found = in_books(&books, instants(entry, "first_start"), instants(entry, "last_end"));
    // Shards are parts of GPUs, and were not counted among them.
    let shards = found.remove("shard");
    assert_eq!(shards.is_some(), entry["shards"].as_i64().unwrap_or(0) > 0, "{name}");
    let mut wrong = Vec::new();
    let mut differ = |what: &str, found: String, wanted: String| {
        if found != wanted {
            wrong.push(format!("{name}: {what}: {found}, counted apart {wanted}"));
        }
    };
    differ("GPU-seconds", format!("{found:?}"), format!("{wanted:?}"));
    let held = mended["held_with_gpus"].as_i64().unwrap_or(0);
    let told_so_far = i64::try_from(running.len()).map_or(0, |kinds| if kinds > 0 { counts.added - held } else { 0 });
    differ("attempts", (counts.added - told_so_far).to_string(), held.to_string());
    let unreadable = if mended == entry { entry["unreadable"].as_array().map_or(0, Vec::len) } else { 0 };
    let asked_only = usize::from(ASKED_ONLY.iter().any(|asked| name.ends_with(asked)));
    differ("refused", refused.len().to_string(), (unreadable + asked_only).to_string());
    let waiting = entry["waiting_array_records"].as_i64().unwrap_or(0);
    let lines = mended["allocation_records"].as_i64().unwrap_or(0) + waiting + i64::try_from(unreadable).unwrap();
    differ("lines", counts.lines.to_string(), lines.to_string());
    wrong
}

#[test]
fn every_real_list_imports_as_counted_apart() {
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(project_file("tests/data/expected.json")).unwrap()).unwrap();
    let mut wrong = Vec::new();
    let mut lists = 0;
    for (name, entry) in expected.as_object().unwrap() {
        if name.starts_with("shared:") || entry["form"] == "trace" {
            continue;
        }
        lists += 1;
        wrong.extend(compare(name, &project_file("tests/data").join(name), entry));
    }
    assert!(lists >= 40, "only {lists} lists");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The lists whose licence forbids a copy, in the folder that `GPULEDGER_TEST_SHARED_DATA` names.
#[test]
fn lists_that_need_the_shared_folder_import_as_counted_apart() {
    let Some(shared) = std::env::var_os("GPULEDGER_TEST_SHARED_DATA").map(std::path::PathBuf::from) else { return };
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(project_file("tests/data/expected.json")).unwrap()).unwrap();
    let mut wrong = Vec::new();
    for (name, entry) in expected.as_object().unwrap() {
        let Some(path) = name.strip_prefix("shared:") else { continue };
        if entry["form"] != "trace" && !path.contains('*') {
            wrong.extend(compare(path, &shared.join(path), entry));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
