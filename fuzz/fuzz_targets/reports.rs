//! The reader of reports: whatever the bytes and however they are packed, it gives a report or a refusal. What it
//! gives must make sense: segments inside their hour and their unit's life, totals that fit, names that are plain.
#![no_main]

use gpuledger::import::report::read_report;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((how, bytes)) = data.split_first() else { return };
    let encoding = match how % 4 {
        0 => "gzip",
        1 => "zstd",
        _ => "",
    };
    let Ok(report) = read_report(bytes, encoding) else { return };
    assert!(!report.node.is_empty() && !report.node.contains(char::is_control));
    for unit in &report.units {
        assert!(!unit.gpu_uuid.is_empty() && unit.death.is_none_or(|death| death >= unit.birth));
        assert!(unit.sku.slices.compute.part() <= unit.sku.slices.compute.whole());
    }
    for job in &report.jobs {
        assert!(!job.facts.name.contains(char::is_control) && job.facts.labels.len() <= 32);
    }
    for record in report.segments.iter().chain(&report.head) {
        let Ok(content) = &record.content else { continue };
        let unit = report.units.get(content.unit).expect("a unit of the report");
        assert!(content.job.is_none_or(|job| job < report.jobs.len()));
        assert!(content.interval.start() >= unit.birth && unit.death.is_none_or(|death| content.interval.end() <= death));
        assert!(content.interval.end() <= content.interval.start().hour().next().start());
        assert_eq!(record.name.hour_us, content.interval.start().hour().start().micros());
        let share = content.share_us;
        assert!((0..=content.interval.length_us()).contains(&share));
        for part in [content.active_us.unwrap_or(0), content.estimated_us, content.suspended_us] {
            assert!((0..=share).contains(&part));
        }
    }
});
