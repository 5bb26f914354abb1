//! The inventory: which GPUs exist where no agent looks at them. Nodes with their pools and GPUs, over time.
//!
//! It says what was bought and how it was cut, never what was held or what it costs. SKUs stand here as the inventory
//! calls them; whoever compares them with others asks the price book first.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{ClusterName, PoolName, SkuCode};
use crate::time::{Instant, Interval, Validity};

/// What is true of a cluster as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterEntry {
    /// The pool of jobs whose nodes are not named or not known.
    pub pool: Option<PoolName>,
    /// The same by partition, which goes before it.
    pub partitions: BTreeMap<String, PoolName>,
}

/// GPUs of one node that are alike and cut alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GpuGroup {
    /// Their SKU.
    pub sku: SkuCode,
    /// How many there are.
    pub count: i32,
    /// How many slices of each kind each of them is cut into; empty where it is whole.
    pub slices: BTreeMap<SkuCode, i32>,
}

/// What is true of a node for a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeTerms {
    /// When this holds.
    pub validity: Validity,
    /// The pool it is in.
    pub pool: PoolName,
    /// Its GPUs.
    pub gpus: Arc<[GpuGroup]>,
}

/// Nodes that are alike, as one entry of the inventory describes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeEntry {
    /// Their cluster.
    pub cluster: ClusterName,
    /// Their names, none twice.
    pub names: Vec<String>,
    /// What is true of each.
    pub terms: NodeTerms,
}

/// A node, for as long as one entry describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeInForce<'a> {
    /// Its cluster.
    pub cluster: &'a ClusterName,
    /// Its name.
    pub node: &'a str,
    /// For how long.
    pub interval: Interval,
    /// What is true of it then.
    pub terms: &'a NodeTerms,
}

/// All clusters and nodes, over time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inventory {
    clusters: BTreeMap<ClusterName, ClusterEntry>,
    nodes: BTreeMap<ClusterName, BTreeMap<String, Vec<NodeTerms>>>,
}

impl Inventory {
    /// The inventory of these entries.
    ///
    /// # Errors
    /// For each entry that describes a node at a time at which an earlier one does: its index, and a sentence.
    pub fn new(
        clusters: BTreeMap<ClusterName, ClusterEntry>,
        entries: &[NodeEntry],
    ) -> Result<Inventory, Vec<(usize, String)>> {
        let mut nodes: BTreeMap<ClusterName, BTreeMap<String, Vec<NodeTerms>>> = BTreeMap::new();
        let mut wrong = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let of_cluster = nodes.entry(entry.cluster.clone()).or_default();
            let mut twice: Option<&str> = None;
            for name in &entry.names {
                let terms = of_cluster.entry(name.clone()).or_default();
                if terms.iter().any(|other| other.validity.overlaps(entry.terms.validity)) {
                    twice = twice.or(Some(name));
                }
                terms.push(entry.terms.clone());
            }
            if let Some(name) = twice {
                let message = format!(
                    "an earlier entry describes “{name}” at the same time; give that one an until, or this one a later from"
                );
                wrong.push((index, message));
            }
        }
        for terms in nodes.values_mut().flat_map(BTreeMap::values_mut) {
            terms.sort_by_key(|terms| terms.validity.from());
        }
        if wrong.is_empty() { Ok(Inventory { clusters, nodes }) } else { Err(wrong) }
    }

    /// What is said of a cluster as a whole.
    #[must_use]
    pub fn cluster(&self, cluster: &ClusterName) -> Option<&ClusterEntry> {
        self.clusters.get(cluster)
    }

    /// The pools a node is in over an interval, in order, without gaps: `None` where the inventory does not know it.
    #[must_use]
    pub fn pools(&self, cluster: &ClusterName, node: &str, interval: Interval) -> Vec<(Interval, Option<PoolName>)> {
        let mut pools: Vec<(Interval, Option<PoolName>)> = Vec::new();
        let mut add = |from: Instant, until: Instant, pool: Option<&PoolName>| {
            let Some(part) = Interval::new(from, until) else { return };
            let longer = match pools.last() {
                Some((before, same)) if same.as_ref() == pool => Interval::new(before.start(), part.end()),
                _ => None,
            };
            if longer.is_some() {
                pools.pop();
            }
            pools.push((longer.unwrap_or(part), pool.cloned()));
        };
        let mut told_until = interval.start();
        for terms in self.terms(cluster, node) {
            let Some(part) = terms.validity.within(interval) else { continue };
            add(told_until, part.start(), None);
            add(part.start(), part.end(), Some(&terms.pool));
            told_until = part.end();
        }
        add(told_until, interval.end(), None);
        pools
    }

    /// The SKU of a node's GPUs where it has GPUs of one kind only; slices count as their own kind.
    #[must_use]
    pub fn only_sku(&self, cluster: &ClusterName, node: &str, at: Instant) -> Option<SkuCode> {
        let terms = self.terms(cluster, node).iter().find(|terms| terms.validity.contains(at))?;
        let mut kinds = terms.gpus.iter().flat_map(GpuGroup::kinds);
        let first = kinds.next()?;
        kinds.all(|kind| kind == first).then(|| first.clone())
    }

    /// Whether it describes a node at any time.
    #[must_use]
    pub fn knows(&self, cluster: &ClusterName, node: &str) -> bool {
        !self.terms(cluster, node).is_empty()
    }

    /// Whether it says nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.nodes.is_empty()
    }

    /// Every node that is described at some time of an interval, by cluster, node and time.
    pub fn within(&self, interval: Interval) -> impl Iterator<Item = NodeInForce<'_>> {
        self.all().filter_map(move |(cluster, node, terms)| {
            let interval = terms.validity.within(interval)?;
            Some(NodeInForce { cluster, node, interval, terms })
        })
    }

    /// Each pool, and from when on the inventory speaks of it. From then on a pool without nodes is an empty one.
    #[must_use]
    pub fn pools_known_from(&self) -> BTreeMap<PoolName, Instant> {
        let mut known: BTreeMap<PoolName, Instant> = BTreeMap::new();
        for (_, _, terms) in self.all() {
            let from = terms.validity.from();
            let first = known.entry(terms.pool.clone()).or_insert(from);
            *first = from.min(*first);
        }
        known
    }

    /// How many nodes it names.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.values().map(BTreeMap::len).sum()
    }

    fn terms(&self, cluster: &ClusterName, node: &str) -> &[NodeTerms] {
        self.nodes.get(cluster).and_then(|nodes| nodes.get(node)).map_or(&[], Vec::as_slice)
    }

    fn all(&self) -> impl Iterator<Item = (&ClusterName, &str, &NodeTerms)> {
        self.nodes.iter().flat_map(|(cluster, nodes)| {
            nodes.iter().flat_map(move |(node, terms)| terms.iter().map(move |terms| (cluster, node.as_str(), terms)))
        })
    }
}

impl GpuGroup {
    /// What a job can hold of it: the GPUs whole, or their slices.
    fn kinds(&self) -> impl Iterator<Item = &SkuCode> {
        let whole = self.slices.is_empty().then_some(&self.sku);
        whole.into_iter().chain(self.slices.keys())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY_US: i64 = 86_400_000_000;

    fn day(number: i64) -> Instant {
        Instant::from_micros(number * DAY_US)
    }

    fn cluster() -> ClusterName {
        ClusterName::parse("c").unwrap()
    }

    fn sku(text: &str) -> SkuCode {
        SkuCode::parse(text).unwrap()
    }

    fn group(code: &str, count: i32, slices: &[(&str, i32)]) -> GpuGroup {
        GpuGroup { sku: sku(code), count, slices: slices.iter().map(|(code, count)| (sku(code), *count)).collect() }
    }

    fn entry(names: &[&str], pool: &str, days: (Option<i64>, Option<i64>), gpus: &[GpuGroup]) -> NodeEntry {
        let validity = Validity::new(days.0.map(day), days.1.map(day)).unwrap();
        NodeEntry {
            cluster: cluster(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            terms: NodeTerms { validity, pool: PoolName::parse(pool).unwrap(), gpus: gpus.into() },
        }
    }

    fn inventory(entries: &[NodeEntry]) -> Inventory {
        Inventory::new(BTreeMap::new(), entries).unwrap()
    }

    fn pools(inventory: &Inventory, node: &str, from: i64, until: i64) -> Vec<(i64, i64, Option<String>)> {
        let interval = Interval::new(day(from), day(until)).unwrap();
        let pools = inventory.pools(&cluster(), node, interval).into_iter();
        pools
            .map(|(part, pool)| {
                (part.start().micros() / DAY_US, part.end().micros() / DAY_US, pool.map(|pool| pool.to_string()))
            })
            .collect()
    }

    #[test]
    fn a_node_moves_from_pool_to_pool_and_is_unknown_between() {
        let gpus = [group("h100", 4, &[])];
        let book = inventory(&[
            entry(&["n1"], "b", (Some(20), Some(30)), &gpus),
            entry(&["n1"], "a", (Some(10), Some(15)), &gpus),
            entry(&["n1"], "b", (Some(30), None), &[group("h100", 8, &[])]),
        ]);
        let (a, b) = (Some("a".to_owned()), Some("b".to_owned()));
        let all = [(5, 10, None), (10, 15, a.clone()), (15, 20, None), (20, 40, b)];
        assert_eq!(pools(&book, "n1", 5, 40), all);
        assert_eq!(pools(&book, "n1", 11, 12), [(11, 12, a)]);
        assert_eq!(pools(&book, "n2", 1, 2), [(1, 2, None)]);
        assert_eq!(book.pools_known_from().into_values().collect::<Vec<_>>(), [day(10), day(20)]);
    }

    #[test]
    fn entries_of_one_node_never_overlap() {
        let gpus = [group("h100", 4, &[])];
        let wrong = Inventory::new(
            BTreeMap::new(),
            &[
                entry(&["n1", "n2"], "a", (None, Some(10)), &gpus),
                entry(&["n2", "n3"], "a", (Some(9), None), &gpus),
                entry(&["n3"], "a", (None, Some(9)), &gpus),
                entry(&["n3"], "b", (Some(3), Some(4)), &gpus),
            ],
        )
        .unwrap_err();
        assert_eq!(wrong.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1, 3]);
        assert!(wrong[0].1.contains("describes “n2” at the same time"), "{wrong:?}");
    }

    #[test]
    fn slices_are_a_kind_of_their_own() {
        let book = inventory(&[
            entry(&["whole"], "a", (None, None), &[group("h100", 4, &[]), group("h100", 4, &[])]),
            entry(&["mixed"], "a", (None, None), &[group("h100", 4, &[]), group("a100", 4, &[])]),
            entry(&["cut"], "a", (None, Some(5)), &[group("a100", 2, &[("a100_3g.20gb", 2)])]),
            entry(&["part"], "a", (None, None), &[group("a100", 2, &[("a100_3g.20gb", 2)]), group("a100", 2, &[])]),
        ]);
        let only = |node: &str| book.only_sku(&cluster(), node, day(1)).map(|sku| sku.to_string());
        assert_eq!(only("whole"), Some("h100".into()));
        assert_eq!(only("cut"), Some("a100_3g.20gb".into()));
        assert_eq!((only("mixed"), only("part"), only("none")), (None, None, None));
        assert_eq!(book.only_sku(&cluster(), "cut", day(5)), None);
        assert!(Inventory::default().is_empty() && !book.is_empty());
    }

    proptest! {
        #[test]
        fn the_pools_of_an_interval_tile_it(
            cuts in prop::collection::btree_set(0i64..60, 0..8), from in 0i64..60, length in 1i64..60,
        ) {
            let cuts: Vec<i64> = cuts.into_iter().collect();
            let entries: Vec<NodeEntry> = cuts.windows(2).enumerate().filter(|(index, _)| index % 3 != 2)
                .map(|(index, pair)| entry(&["n"], if index % 2 == 0 { "a" } else { "b" }, (Some(pair[0]), Some(pair[1])),
                    &[group("h100", 1, &[])]))
                .collect();
            let parts = pools(&inventory(&entries), "n", from, from + length);
            prop_assert_eq!((parts[0].0, parts[parts.len() - 1].1), (from, from + length));
            prop_assert!(parts.windows(2).all(|pair| pair[0].1 == pair[1].0 && pair[0].2 != pair[1].2));
        }
    }
}
