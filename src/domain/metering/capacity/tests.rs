//! Whether capacity adds up.

use super::*;
use crate::time::HOUR_US;
use proptest::prelude::*;

const MINUTE_US: i64 = 60_000_000;

struct World {
    pool: PoolName,
    sku: SkuCode,
    cluster: ClusterName,
    names: Vec<String>,
}

impl World {
    fn new() -> World {
        World {
            pool: PoolName::parse("p").unwrap(),
            sku: SkuCode::parse("h100/full").unwrap(),
            cluster: ClusterName::parse("c").unwrap(),
            names: (0..4).map(|number| format!("n{number}")).collect(),
        }
    }

    fn key(&self) -> StockKey<'_> {
        StockKey { pool: &self.pool, sku: &self.sku }
    }

    fn node(&self, number: usize) -> NodeKey<'_> {
        NodeKey { cluster: &self.cluster, node: &self.names[number] }
    }

    fn stock(&self, number: usize, minutes: (i64, i64), count: i64) -> Stock<'_> {
        Stock { key: self.key(), node: self.node(number), interval: interval(minutes), count }
    }

    fn outage(&self, number: usize, minutes: (i64, i64)) -> Outage<'_> {
        Outage { node: self.node(number), interval: interval(minutes) }
    }

    fn holding(&self, number: Option<usize>, minutes: (i64, i64), count: i32) -> Holding<'_> {
        let interval = interval(minutes);
        let share_us = interval.length_us() * i64::from(count);
        Holding {
            key: self.key(),
            node: number.map(|number| self.node(number)),
            job: JobId(1),
            interval,
            count,
            share_us,
        }
    }

    fn hour(&self, stocks: &[Stock<'_>], outages: &[Outage<'_>], holdings: &[Holding<'_>]) -> HourCapacity {
        capacity_of_hour(stocks, outages, holdings).unwrap().remove(&self.key()).unwrap_or_default()
    }
}

fn interval((from, until): (i64, i64)) -> Interval {
    let at = |minutes: i64| Instant::from_micros(minutes * MINUTE_US);
    Interval::new(at(from), at(until)).unwrap()
}

/// Exists, held, idle, out of service, excess; in minutes.
fn minutes(hour: &HourCapacity) -> [i128; 5] {
    let Capacity { exists_us, held_us, idle_us, out_of_service_us, excess_us } = hour.capacity;
    [exists_us, held_us, idle_us, out_of_service_us, excess_us].map(|us| us / i128::from(MINUTE_US))
}

#[test]
fn what_is_neither_held_nor_out_of_service_is_idle() {
    let w = World::new();
    let hour = w.hour(&[w.stock(0, (0, 60), 4)], &[w.outage(0, (40, 60))], &[w.holding(Some(0), (10, 50), 3)]);
    // Three quarters drain until minute 50; one GPU is out from 40 on, all four from 50 on.
    assert_eq!(minutes(&hour), [240, 120, 70, 50, 0]);
    assert!(hour.contradicted.is_empty());
}

#[test]
fn two_jobs_on_one_gpu_are_found_though_the_hour_has_room() {
    let w = World::new();
    let hour = w.hour(&[w.stock(0, (0, 60), 1)], &[], &[w.holding(None, (0, 20), 1), w.holding(None, (10, 20), 1)]);
    assert_eq!(minutes(&hour), [60, 30, 40, 0, 10]);
    assert_eq!(hour.contradicted, [interval((10, 20))]);
    let hour = w.hour(&[w.stock(0, (30, 60), 1)], &[], &[w.holding(Some(0), (0, 30), 1)]);
    assert_eq!(hour.contradicted, [interval((0, 30))]);
    let hour = w.hour(&[], &[], &[w.holding(None, (0, 10), 2), w.holding(None, (10, 20), 1)]);
    assert_eq!((minutes(&hour), hour.contradicted), ([0, 30, 0, 0, 30], vec![interval((0, 20))]));
}

#[test]
fn jobs_without_a_node_may_run_on_one_that_drains() {
    let w = World::new();
    let stocks = [w.stock(0, (0, 60), 4), w.stock(1, (0, 60), 4)];
    let hour = w.hour(&stocks, &[w.outage(0, (0, 60))], &[w.holding(None, (0, 60), 6)]);
    assert_eq!(minutes(&hour), [480, 360, 0, 120, 0]);
    let hour = w.hour(&stocks, &[w.outage(0, (0, 60)), w.outage(0, (0, 30))], &[w.holding(Some(1), (0, 60), 2)]);
    assert_eq!(minutes(&hour), [480, 120, 120, 240, 0]);
}

#[test]
fn shares_of_one_gpu_are_no_contradiction_by_their_rounding() {
    let w = World::new();
    let third = |from: i64, share_us: i64| {
        let interval = Interval::new(Instant::from_micros(from), Instant::from_micros(from + 1_000_000)).unwrap();
        Holding { interval, count: 1, share_us, ..w.holding(Some(0), (0, 1), 1) }
    };
    let hour = w.hour(&[w.stock(0, (0, 60), 1)], &[], &[third(0, 333_334), third(0, 333_334), third(0, 333_334)]);
    assert!(hour.contradicted.is_empty());
    assert_eq!(hour.capacity.held_us, 1_000_002);
    let hour = w.hour(&[w.stock(0, (0, 60), 1)], &[], &[third(0, 500_000), third(0, 500_000), third(0, 500_000)]);
    assert_eq!(hour.contradicted.len(), 1);
}

type Times = (i64, i64);

fn times() -> impl Strategy<Value = Times> {
    (0i64..60, 1i64..61).prop_filter_map("a time", |(from, until)| (from < until).then_some((from, until)))
}

proptest! {
    #[test]
    fn existence_is_held_and_idle_and_out_of_service(
        stocks in prop::collection::vec((0usize..4, times(), 1i64..5), 0..8),
        outages in prop::collection::vec((0usize..4, times()), 0..5),
        holdings in prop::collection::vec((prop::option::of(0usize..4), times(), 1i32..4, 1i64..5), 0..12),
    ) {
        let w = World::new();
        let stocks: Vec<_> = stocks.iter().map(|(node, times, count)| w.stock(*node, *times, *count)).collect();
        let outages: Vec<_> = outages.iter().map(|(node, times)| w.outage(*node, *times)).collect();
        let holdings: Vec<_> = holdings.iter().map(|(node, times, count, parts)| {
            let whole = w.holding(*node, *times, *count);
            Holding { share_us: whole.share_us / parts, ..whole }
        }).collect();
        let hour = w.hour(&stocks, &outages, &holdings);
        let sums = hour.capacity;
        prop_assert_eq!(sums.exists_us + sums.excess_us, sums.held_us + sums.idle_us + sums.out_of_service_us);
        for part in [sums.exists_us, sums.held_us, sums.idle_us, sums.out_of_service_us, sums.excess_us] {
            prop_assert!(part >= 0);
        }
        let exists: i64 = stocks.iter().map(|stock| stock.interval.length_us() * stock.count).sum();
        let held: i64 = holdings.iter().map(|holding| holding.share_us).sum();
        prop_assert_eq!((sums.exists_us, sums.held_us), (exists.into(), held.into()));
        let whole = holdings.iter().all(|holding| !holding.is_shared());
        if whole {
            prop_assert_eq!(sums.excess_us > 0, !hour.contradicted.is_empty());
        }
        // By hand, minute by minute, where nothing is shared.
        if whole {
            let mut by_hand = [0i128; 5];
            for minute in 0..60 {
                let now = Instant::from_micros(minute * MINUTE_US);
                let exists_on = |node: Option<usize>| -> i64 { stocks.iter()
                    .filter(|stock| stock.interval.contains(now) && node.is_none_or(|node| stock.node == w.node(node)))
                    .map(|stock| stock.count).sum() };
                let held_on = |node: Option<usize>| -> i64 { holdings.iter()
                    .filter(|held| held.interval.contains(now) && node.is_none_or(|node| held.node == Some(w.node(node))))
                    .map(|held| i64::from(held.count)).sum() };
                let down = |node: usize| outages.iter().any(|outage| outage.node == w.node(node) && outage.interval.contains(now));
                let (exists, held) = (exists_on(None), held_on(None));
                let out: i64 = (0..4).filter(|node| down(*node))
                    .map(|node| (exists_on(Some(node)) - held_on(Some(node))).max(0)).sum();
                let out = out.min((exists - held).max(0));
                let row = [exists, held, (exists - held).max(0) - out, out, (held - exists).max(0)];
                by_hand.iter_mut().zip(row).for_each(|(sum, part)| *sum += i128::from(part));
            }
            prop_assert_eq!(minutes(&hour), by_hand);
        }
    }

    #[test]
    fn the_parts_of_a_holding_add_up_to_it(share_us in 0i64..HOUR_US * 8, cut in 1i64..59) {
        let w = World::new();
        let whole = Holding { share_us, ..w.holding(None, (0, 60), 8) };
        let parts = [whole.within(interval((0, cut))), whole.within(interval((cut, 90)))];
        prop_assert_eq!(parts.iter().flatten().map(|part| part.share_us).sum::<i64>(), share_us);
        prop_assert!(whole.within(interval((60, 70))).is_none());
    }
}
