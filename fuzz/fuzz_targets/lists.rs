//! Every reader of lists that other systems write: whatever the bytes, it gives records or says what is wrong. What
//! it gives must make sense: time that runs forward, counts above zero, nothing suspended for longer than it was held.
#![no_main]

use gpuledger::files::{SourceText, mapping};
use gpuledger::import::InputFile;
use gpuledger::import::job_record::{Held, JobList};
use gpuledger::import::sacct::{SacctList, SacctOptions};
use gpuledger_domain::ids::ClusterName;
use libfuzzer_sys::fuzz_target;

const MAPPINGS: [&str; 2] = [
    "[columns]\nid = \"id\"\nstart = \"start\"\nend = \"end\"\ngpus = \"gpus\"\nsku = \"sku\"\nnodes = \"nodes\"\n[constants]\ncluster = \"c\"\npool = \"p\"\n",
    "[columns]\nstart = \"start\"\nduration = \"seconds\"\ngpus = \"gpus\"\nuser = \"user\"\n[constants]\ncluster = \"c\"\npool = \"p\"\nsku = \"s\"\n[time]\nformat = \"%Y-%m-%d %H:%M:%S\"\nzone = \"Europe/Berlin\"\n[csv]\ndelimiter = \"|\"\n",
];
const FIELDS: &str =
    "JobID,JobIDRaw,State,JobName,Start,End,Elapsed,Suspended,AllocTRES,ReqTRES,NodeList,User,Account,Comment";

/// Reads a list to its end.
fn read(list: &dyn JobList, file: &InputFile) {
    let Ok(mut reader) = list.open(file) else { return };
    let mut lines = 0u32;
    while let Some(line) = reader.next() {
        lines += 1;
        assert!(lines < 1_000_000, "a reader that never ends");
        let Ok(record) = line else { continue };
        for grant in &record.grants {
            assert!(grant.count > 0);
            assert!(!record.facts.name.contains(char::is_control));
        }
        if let Held::Ended(interval) = record.held {
            assert!((0..=interval.length_us()).contains(&record.suspended_us), "{record:?}");
            assert!(!record.grants.is_empty() || record.suspended_us == 0 || record.facts.gpus == 0);
        }
    }
    let _ = (reader.notices(), reader.cut_facts(), reader.bytes_read());
}

fuzz_target!(|data: &[u8]| {
    let Some((how, bytes)) = data.split_first() else { return };
    let file = InputFile::of_bytes("list", bytes);
    let options = match how % 8 {
        index @ 0..=1 => {
            let text = MAPPINGS[usize::from(index)];
            read(&mapping::parse(&SourceText::new("mapping.toml", text)).unwrap(), &file);
            return;
        }
        2 => SacctOptions::default(),
        3 => SacctOptions { zone: Some("Europe/Berlin".into()), ..SacctOptions::default() },
        4 => SacctOptions { fields: Some(FIELDS.split(',').map(str::to_owned).collect()), ..SacctOptions::default() },
        5 => SacctOptions {
            fields: Some(FIELDS.split(',').map(str::to_owned).collect()),
            delimiter: Some("|#".into()),
            zone: Some("UTC".into()),
            ..SacctOptions::default()
        },
        _ => SacctOptions { zone: Some("UTC".into()), ..SacctOptions::default() },
    };
    let options = SacctOptions { cluster: options.cluster.or_else(|| ClusterName::parse("c").ok().filter(|_| how & 8 == 0)), ..options };
    if let Ok(list) = SacctList::of_file(&file, options) {
        read(&list, &file);
        let _ = list.examine(&file);
    }
});
