//! The inventory file: clusters, and nodes with their pools and GPUs over time.

use std::collections::BTreeMap;

use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{ClusterName, PoolName, SkuCode, checked_fact};
use gpuledger_domain::inventory::{ClusterEntry, GpuGroup, Inventory, NodeEntry, NodeTerms};
use gpuledger_domain::pricing::PriceBook;
use gpuledger_domain::units::{Fraction, Overflow, Ratio};
use serde::Deserialize;
use toml::Spanned;

use super::{SourceText, When, host_list};
use crate::diagnostics::Diagnostics;

/// Most GPUs in one node, and most slices of one kind in a GPU: a larger number is a slip.
const COUNT_MAX: i64 = 10_000;
/// Most shards of one GPU.
/// Most nodes that a file describes, each as often as it does so.
const NODES_MAX: usize = 500_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InventoryFile {
    #[serde(default)]
    cluster: Vec<ClusterToml>,
    #[serde(default)]
    node: Vec<NodeToml>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterToml {
    name: Spanned<String>,
    pool: Option<Spanned<String>>,
    #[serde(default)]
    partitions: BTreeMap<Spanned<String>, Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeToml {
    cluster: Spanned<String>,
    names: Spanned<String>,
    pool: Spanned<String>,
    from: Option<Spanned<When>>,
    until: Option<Spanned<When>>,
    #[serde(default)]
    gpu: Vec<GpuToml>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuToml {
    sku: Spanned<String>,
    count: Spanned<i64>,
    #[serde(default)]
    slices: BTreeMap<Spanned<String>, Spanned<i64>>,
}

/// Reads an inventory file.
///
/// # Errors
/// Every mistake in it.
pub fn parse(source: &SourceText, calendar: &BillingCalendar) -> Result<Inventory, Diagnostics> {
    let file: InventoryFile = source.parse_toml()?;
    let mut wrong = Diagnostics::default();
    let mut clusters: BTreeMap<ClusterName, ClusterEntry> = BTreeMap::new();
    for entry in &file.cluster {
        let Some((name, read)) = cluster(source, &mut wrong, entry) else { continue };
        if clusters.insert(name, read).is_some() {
            wrong.push(source.at(
                entry.name.span().start,
                "name",
                "an earlier entry is for this cluster; keep one of the two",
            ));
        }
    }
    // With its place in the file, since an entry with a mistake is left out.
    let (mut entries, mut places, mut count) = (Vec::new(), Vec::new(), 0usize);
    for entry in &file.node {
        let Some(read) = node(source, calendar, &mut wrong, entry) else { continue };
        count = count.saturating_add(read.names.len());
        if count > NODES_MAX {
            let message = format!("the file describes more than {NODES_MAX} nodes up to here; correct the ranges");
            wrong.push(source.at(entry.names.span().start, "names", message));
            return Err(wrong);
        }
        entries.push(read);
        places.push(entry.names.span().start);
    }
    match Inventory::new(clusters, &entries) {
        Ok(inventory) => wrong.into_result().map(|()| inventory),
        Err(overlaps) => {
            for (index, message) in overlaps {
                wrong.push(source.at(places.get(index).copied().unwrap_or(0), "names", message));
            }
            Err(wrong)
        }
    }
}

/// Checks that each GPU could be cut as its layout says, as far as the price book knows the slices.
///
/// # Errors
/// Every layout that cannot exist.
pub fn check_layouts(source: &SourceText, prices: &PriceBook) -> Result<(), Diagnostics> {
    let file: InventoryFile = source.parse_toml()?;
    let mut wrong = Diagnostics::default();
    for gpu in file.node.iter().flat_map(|node| &node.gpu).filter(|gpu| !gpu.slices.is_empty()) {
        let known = prices.sku(gpu.sku.get_ref());
        if known.as_ref().is_some_and(|sku| !sku.is_full()) {
            let message = format!("“{}” is itself a slice; give the GPU whose slices these are", gpu.sku.get_ref());
            wrong.push(source.at(gpu.sku.span().start, "sku", message));
            continue;
        }
        let at = gpu.slices.keys().next().map_or(0, |name| name.span().start);
        match too_much(gpu, prices) {
            Ok(None) => {}
            Ok(Some((what, sum))) => {
                let message = format!(
                    "the slices have {sum} of the {what} slices of “{}”, so that no GPU can be cut like this; correct the numbers, or the slices in the price book",
                    gpu.sku.get_ref()
                );
                wrong.push(source.at(at, "slices", message));
            }
            Err(overflow) => wrong.push(source.at(at, "slices", overflow.to_string())),
        }
    }
    wrong.into_result()
}

/// What a layout has more of than its GPU, and how much of it.
fn too_much(gpu: &GpuToml, prices: &PriceBook) -> Result<Option<(&'static str, Fraction)>, Overflow> {
    let (mut compute, mut memory) = (Fraction::ZERO, Fraction::ZERO);
    for (name, count) in &gpu.slices {
        let Some(slices) = prices.sku(name.get_ref()).and_then(|sku| sku.known_slices()) else { continue };
        let times = |part: Ratio| part.fraction().times(Fraction::whole(i128::from(*count.get_ref())));
        compute = compute.plus(times(slices.compute)?)?;
        memory = memory.plus(times(slices.memory)?)?;
    }
    let sums = [("compute", compute), ("memory", memory)];
    Ok(sums.into_iter().find(|(_, sum)| *sum > Fraction::whole(1)))
}

fn cluster(source: &SourceText, wrong: &mut Diagnostics, entry: &ClusterToml) -> Option<(ClusterName, ClusterEntry)> {
    let name = wrong.check(source, "name", &entry.name, ClusterName::parse);
    let pool = match &entry.pool {
        Some(text) => wrong.check(source, "pool", text, PoolName::parse).map(Some),
        None => Some(None),
    };
    let partitions: Vec<Option<(String, PoolName)>> = entry
        .partitions
        .iter()
        .map(|(partition, pool)| {
            let partition = wrong.check(source, "partitions", partition, |text| checked_fact(text).map(str::to_owned));
            let pool = wrong.check(source, "partitions", pool, PoolName::parse);
            partition.zip(pool)
        })
        .collect();
    let entry = ClusterEntry { pool: pool?, partitions: partitions.into_iter().collect::<Option<_>>()? };
    Some((name?, entry))
}

fn node(
    source: &SourceText,
    calendar: &BillingCalendar,
    wrong: &mut Diagnostics,
    entry: &NodeToml,
) -> Option<NodeEntry> {
    let cluster = wrong.check(source, "cluster", &entry.cluster, ClusterName::parse);
    let names = wrong.check(source, "names", &entry.names, |text| match host_list::expand(text) {
        Ok(names) if names.is_empty() => Err("it names no node; write them like gpu[01-04]".to_owned()),
        other => other,
    });
    let pool = wrong.check(source, "pool", &entry.pool, PoolName::parse);
    let validity = wrong.validity(source, calendar, entry.from.as_ref(), entry.until.as_ref());
    let gpus: Vec<Option<GpuGroup>> = entry.gpu.iter().map(|gpu| group(source, wrong, gpu)).collect();
    if gpus.is_empty() {
        let message = "nothing says which GPUs these nodes have; add [[node.gpu]] below the entry, or remove it";
        wrong.push(source.at(entry.names.span().start, "names", message));
        return None;
    }
    let gpus: Option<Vec<GpuGroup>> = gpus.into_iter().collect();
    let terms = NodeTerms { validity: validity?, pool: pool?, gpus: gpus?.into() };
    Some(NodeEntry { cluster: cluster?, names: names?, terms })
}

fn group(source: &SourceText, wrong: &mut Diagnostics, entry: &GpuToml) -> Option<GpuGroup> {
    let sku = wrong.check(source, "sku", &entry.sku, SkuCode::parse);
    let count = number_in(source, wrong, "count", &entry.count, COUNT_MAX);
    let slices: Vec<Option<(SkuCode, i32)>> = entry
        .slices
        .iter()
        .map(|(name, count)| {
            let name = wrong.check(source, "slices", name, SkuCode::parse);
            name.zip(number_in(source, wrong, "slices", count, COUNT_MAX))
        })
        .collect();
    Some(GpuGroup { sku: sku?, count: count?, slices: slices.into_iter().collect::<Option<_>>()? })
}

/// A whole number from 1 to `most`.
fn number_in(
    source: &SourceText,
    wrong: &mut Diagnostics,
    field: &str,
    number: &Spanned<i64>,
    most: i64,
) -> Option<i32> {
    let value = *number.get_ref();
    let read = i32::try_from(value).ok().filter(|_| (1..=most).contains(&value));
    let message = || format!("{value} is no number of them; write one from 1 to {most}");
    wrong.note(source, number.span().start, field, read.ok_or_else(message))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::files::prices;
    use gpuledger_domain::time::{Instant, Interval};

    fn calendar() -> BillingCalendar {
        BillingCalendar::new("Europe/Berlin").unwrap()
    }

    fn parsed(text: &str) -> Result<Inventory, String> {
        parse(&SourceText::new("inventory.toml", text), &calendar()).map_err(|wrong| wrong.to_string())
    }

    const GOOD: &str = "[[cluster]]\nname = \"gpulab\"\npool = \"training\"\npartitions = { preempt = \"dev\" }\n
[[node]]\ncluster = \"gpulab\"\nnames = \"gpu[01-04]\"\npool = \"training\"\nfrom = \"2026-01-01\"\nuntil = 2026-07-01T00:00:00Z
[[node.gpu]]\nsku = \"h100\"\ncount = 4\n[[node.gpu]]\nsku = \"a100\"\ncount = 2\nslices = { \"a100_3g.20gb\" = 2 }\n";

    #[test]
    fn an_inventory_reads_as_it_is_written() {
        let inventory = parsed(GOOD).unwrap();
        let name = ClusterName::parse("gpulab").unwrap();
        let cluster = inventory.cluster(&name).unwrap();
        assert_eq!(cluster.partitions["preempt"].as_str(), "dev");
        assert_eq!(cluster.pool.as_ref().unwrap().as_str(), "training");
        let at = |text: &str| Instant::parse(text).unwrap();
        let year = Interval::new(at("2025-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z")).unwrap();
        let node = inventory.within(year).next().unwrap();
        assert_eq!(node.interval.to_string(), "[2025-12-31T23:00:00Z, 2026-07-01T00:00:00Z)");
        assert_eq!((node.node, node.terms.gpus[1].count), ("gpu01", 2));
        assert_eq!(inventory.node_count(), 4);
    }

    #[test]
    fn every_mistake_is_told_with_line_column_and_remedy() {
        let text = "[[cluster]]\nname = \"c\"\npool = \"a b\"\n
[[node]]\ncluster = \"c\"\nnames = \"n[1-\"\npool = \"p\"\n[[node.gpu]]\nsku = \"h100\"\ncount = -1\n
[[node]]\ncluster = \"c\"\nnames = \"n1\"\npool = \"p\"\nuntil = \"2026-13-01\"\n[[node.gpu]]\nsku = \"h100\"\ncount = 1\nslices = { \"x\" = 0 }\n
[[node]]\ncluster = \"c\"\nnames = \"n2\"\npool = \"p\"\n
[[node]]\ncluster = \"c\"\nnames = \"n3\"\npool = \"p\"\n[[node.gpu]]\nsku = \"h100\"\ncount = 1\n
[[node]]\ncluster = \"c\"\nnames = \"n[2-4]\"\npool = \"q\"\n[[node.gpu]]\nsku = \"h100\"\ncount = 1\n";
        let message = parsed(text).unwrap_err();
        let starts: Vec<&str> = message.lines().map(|line| line.split(": ").next().unwrap()).collect();
        let places = ["3:8", "7:9", "11:9", "17:9", "21:18", "25:9", "38:9"];
        let places: Vec<String> = places.iter().map(|place| format!("inventory.toml:{place}")).collect();
        assert_eq!(starts, places, "{message}");
        for told in [
            "names: “n[1-” has no closing bracket",
            "until: “2026-13-01” is ambiguous or no instant",
            "names: nothing says which GPUs these nodes have; add [[node.gpu]]",
            "names: an earlier entry describes “n3” at the same time; give that one an until",
        ] {
            assert!(message.contains(told), "{told}\n{message}");
        }
        assert!(parsed("[[node]]\ncluster = \"c\"\n").unwrap_err().contains("missing field"));
        assert!(parsed("[[nodes]]\n").unwrap_err().contains("unknown field"));
    }

    #[test]
    fn a_layout_never_has_more_than_its_gpu() {
        let book = |text: &str| prices::parse(&SourceText::new("p", text), &calendar(), prices::Checks::All).unwrap();
        let prices = book(
            "[[price]]\nsku = \"a100\"\nrate = \"1\"\n[[sku]]\ncode = \"a100/3g.20gb\"\ncompute = \"3/7\"\nmemory = \"4/8\"\naliases = [\"a100_3g.20gb\"]\n",
        );
        let check = |text: &str, prices: &PriceBook| {
            check_layouts(&SourceText::new("inventory.toml", text), prices).map_err(|wrong| wrong.to_string())
        };
        let three = GOOD.replace("= 2 }", "= 3 }");
        assert_eq!(check(GOOD, &prices), Ok(()));
        assert_eq!(check(&three, &PriceBook::default()), Ok(()));
        assert!(
            check(&three, &prices).unwrap_err().starts_with(
                "inventory.toml:18:12: slices: the slices have 9/7 of the compute slices of “a100”, so that no GPU can be cut like this; correct"
            )
        );
        let sliced = GOOD.replace("sku = \"a100\"", "sku = \"a100_3g.20gb\"");
        assert!(check(&sliced, &prices).unwrap_err().contains("is itself a slice"));
    }
}
