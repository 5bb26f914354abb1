//! Events whatever the order of their lists, and contradictions that were accepted.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger::import::InputFile;
use gpuledger::import::event_list::EventFormat;
use gpuledger::workflows::capacity::capacity;
use gpuledger::workflows::close::{Closed, close, close_accepting};
use gpuledger::workflows::examine::examine;
use gpuledger::workflows::import_events::{ImportEvents, ImportedEvents, import_events};
use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_db::{Db, audit, check, dimensions, node_event};
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::ids::ClusterName;
use gpuledger_domain::time::{Instant, Interval};

use crate::support::jobs::{apply_text, import, now};
use crate::support::{Books, on_both};

fn events(db: &mut Db, cluster: &str, rows: &str) -> ImportedEvents {
    let cluster = ClusterName::parse(cluster).unwrap();
    let called = ClusterName::parse("slurm").unwrap();
    let format = EventFormat { cluster: called, zone: None, delimiter: b'|' };
    let text = format!("Cluster|NodeName|TimeStart|TimeEnd|State|Reason\n{rows}");
    let file = InputFile::of_bytes("events.txt", text.as_bytes());
    let ask = ImportEvents { cluster: &cluster, format: &format, actor: "test" };
    import_events(db, &file, &ask, now(), |line| panic!("{line:?}")).unwrap()
}

/// Every order of some things.
fn orders(things: &[&'static str]) -> Vec<Vec<&'static str>> {
    if things.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, first) in things.iter().enumerate() {
        let rest: Vec<_> = things.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, t)| *t).collect();
        all.extend(orders(&rest).into_iter().map(|order| [vec![*first], order].concat()));
    }
    all
}

fn events_are_the_same_in_any_order_and_any_number_of_times(books: Books) {
    let books = books.migrated("UTC");
    let mut db = books.db();
    let lists = [
        "slurm|n[1-2]|2025-05-01T00:00:00Z|Unknown|DRAIN|first\nslurm|n3|2025-05-01T00:00:00Z|Unknown|DOWN|\n",
        "slurm|n1|2025-05-01T00:00:00Z|2025-05-02T00:00:00Z|DRAIN|first\nslurm|n3|2025-05-04T00:00:00Z|2025-05-05T00:00:00Z|DOWN|\n",
        "slurm|n1|2025-05-01T00:00:00Z|2025-05-03T00:00:00Z|DRAIN|told again\nslurm|n2|2025-05-01T00:00:00Z|Unknown|DOWN|first\n",
        "slurm|n1|2025-05-01T00:00:00Z|2025-05-03T00:00:00Z|DOWN|told again\n",
    ];
    let orders = orders(&lists);
    for (number, order) in orders.iter().enumerate() {
        for list in order {
            events(&mut db, &format!("c{number}"), list);
        }
        let again = events(&mut db, &format!("c{number}"), order[0]);
        assert_eq!((again.counts.added, again.counts.revised), (0, 0));
    }
    let machines = dimensions::machines(&mut db).unwrap();
    let at = |text: &str| Instant::parse(text).unwrap();
    let june = Interval::new(at("2025-01-01T00:00:00Z"), at("2025-06-01T00:00:00Z")).unwrap();
    let mut by_cluster: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    for (node, interval) in node_event::within(&mut db, june).unwrap() {
        let (cluster, name) = &machines[&node];
        let event = node_event::find(&mut db, node, interval.start()).unwrap().unwrap();
        by_cluster.entry(*cluster).or_default().push(format!("{name} {interval} {} {}", event.state, event.reason));
    }
    by_cluster.values_mut().for_each(|events| events.sort());
    assert_eq!(by_cluster.len(), orders.len());
    let distinct: BTreeSet<_> = by_cluster.into_values().collect();
    let wanted = [
        "n1 [2025-05-01T00:00:00Z, 2025-05-03T00:00:00Z) DRAIN told again",
        "n2 [2025-05-01T00:00:00Z, 2025-06-01T00:00:00Z) DRAIN first",
        // What nobody told the end of is over when the node's next event begins.
        "n3 [2025-05-01T00:00:00Z, 2025-05-04T00:00:00Z) DOWN ",
        "n3 [2025-05-04T00:00:00Z, 2025-05-05T00:00:00Z) DOWN ",
    ];
    assert_eq!(distinct, BTreeSet::from([wanted.map(str::to_owned).to_vec()]));
    assert_eq!(check::orphans(&mut db).unwrap(), []);
}

const MAPPING: &str = "[columns]\nid = \"id\"\nstart = \"start\"\nend = \"end\"\ngpus = \"gpus\"\n[constants]\ncluster = \"c\"\npool = \"p\"\nsku = \"h100\"\n";
const INVENTORY: &str =
    "[[node]]\ncluster = \"c\"\nnames = \"n1\"\npool = \"p\"\n[[node.gpu]]\nsku = \"h100\"\ncount = 2\n";

fn accepted_contradictions_stand_in_the_audit_log(books: Books) {
    let books = books.migrated("Asia/Kolkata");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("Asia/Kolkata").unwrap());
    let mut apply = |kind, text| apply_text(&mut db, &calendar, kind, text).unwrap().version;
    apply(CatalogueKind::Teams, "[[team]]\ncode = \"t\"\nname = \"T\"\n");
    apply(CatalogueKind::Rules, "[[rule]]\nname = \"all\"\nteam = \"t\"\n");
    apply(CatalogueKind::Prices, "[[price]]\nsku = \"h100\"\nrate = \"1\"\n");
    assert_eq!(apply(CatalogueKind::Inventory, INVENTORY), 1);
    // The month begins at half past an hour of UTC: what was held before belongs to the month before.
    let list = "id,start,end,gpus\n1,2025-04-30T18:00:00Z,2025-04-30T20:00:00Z,3\n2,2025-05-03T10:00:00Z,2025-05-03T11:00:00Z,2\n";
    import(&mut db, &calendar, MAPPING, list.as_bytes());
    let may = Month::parse("2025-05").unwrap();
    let report = capacity(&mut db, &calendar, calendar.period(may).interval, now()).unwrap();
    let hours: Vec<String> = report.contradictions.iter().map(|found| found.hour.to_string()).collect();
    let wanted = ["[2025-04-30T18:30:00Z, 2025-04-30T19:00:00Z)", "[2025-04-30T19:00:00Z, 2025-04-30T20:00:00Z)"];
    assert_eq!(hours, wanted);
    let sums = report.rows[0].capacity;
    assert_eq!(sums.held_us, (3 * 3 / 2 + 2) * 3_600_000_000 + 1_800_000_000);
    assert_eq!(sums.exists_us + sums.excess_us, sums.held_us + sums.idle_us + sums.out_of_service_us);

    let findings = examine(&books.database(), &calendar, now()).unwrap();
    let found: Vec<&str> =
        findings.iter().filter(|found| found.subject == "capacity").map(|found| found.text.as_str()).collect();
    let wanted = [
        "2025-04: 1 contradictions; look with `gpuledger capacity --period 2025-04`",
        "2025-05: 2 contradictions; look with `gpuledger capacity --period 2025-05`",
    ];
    assert_eq!(found, wanted);
    assert!(!findings.iter().any(|found| found.text.contains("it can be closed")));
    let refused = close(&mut db, &calendar, may, "test", now).unwrap_err().to_string();
    assert!(refused.starts_with("2025-05 cannot be closed: 2 contradictions between lists and inventory"), "{refused}");
    for bad in ["", " ", "a\nb"] {
        assert!(close_accepting(&mut db, &calendar, may, Some(bad), "test", now).is_err());
    }
    let closed = close_accepting(&mut db, &calendar, may, Some("lent by the lab"), "test", now).unwrap();
    assert_eq!(closed, Closed::Now);
    let audited: Vec<(String, String)> =
        audit::all(&mut db).unwrap().into_iter().map(|entry| (entry.action, entry.after)).collect();
    let (action, after) = audited.last().unwrap();
    assert_eq!(action, "close --accept-contradictions");
    assert!(after.ends_with(": 2 contradictions accepted: lent by the lab"), "{after}");
    assert!(audited.iter().any(|(action, after)| action == "inventory apply" && after.starts_with("version 1, ")));
    // The inventory decides no amount: it may change what a closed month was compared with.
    let larger = INVENTORY.replace("count = 2", "count = 3");
    assert_eq!(apply_text(&mut db, &calendar, CatalogueKind::Inventory, &larger).unwrap().version, 2);
}

on_both!(events_are_the_same_in_any_order_and_any_number_of_times, accepted_contradictions_stand_in_the_audit_log);
