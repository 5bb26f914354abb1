//! What must hold of every statement.

use super::*;
use crate::ids::{FactSetId, NodeId, SkuCode, TeamId};
use crate::metering::{State, Usage, UsageKey};
use crate::pricing::{Payer, SkuSlices, SuspendedTime, Terms, charge};
use crate::time::{Instant, Interval};
use proptest::prelude::*;

struct Words {
    skus: Vec<Sku>,
    pool: PoolName,
}

impl Names for Words {
    fn sku(&self, id: SkuId) -> Option<&Sku> {
        self.skus.get(usize::try_from(id.0).ok()?)
    }
    fn pool(&self, _: PoolId) -> Option<&PoolName> {
        Some(&self.pool)
    }
    fn experiment(&self, id: ExperimentId) -> Option<&str> {
        ["", "alpha", "beta"].get(usize::try_from(id.0).ok()?).copied().filter(|name| !name.is_empty())
    }
}

fn words() -> Words {
    let sku = |code: &str, part| Sku {
        code: SkuCode::parse(code).unwrap(),
        slices: SkuSlices::of(Ratio::new(part, 7).unwrap(), Ratio::new(part, 8).unwrap()),
    };
    Words {
        skus: vec![sku("h100/full", 7), sku("h100/1g.10gb", 1), sku("h100/3g.40gb", 3)],
        pool: PoolName::parse("training").unwrap(),
    }
}

fn a_charge(share_us: i64, sku: i32, rate: &str, workload: Workload, experiment: i32) -> Charge {
    let slot = Interval::new(Instant::from_micros(0), Instant::from_micros(86_400_000_000)).unwrap();
    let usage = Usage {
        key: UsageKey {
            slot,
            node: NodeId(1),
            job: JobId(share_us),
            facts: FactSetId(1),
            sku: SkuId(sku),
            state: State::Held,
        },
        share_us,
        active_us: 0,
        active_measured_us: 0,
        estimated_us: 0,
        suspended_us: 0,
        segments: 1,
    };
    let payer = Payer {
        team: TeamId(1),
        pool: PoolId(1),
        service_class: ServiceClass::OnDemand,
        workload,
        experiment: ExperimentId(experiment),
    };
    let weight = words().skus[usize::try_from(sku).unwrap()].slices.compute;
    charge(&usage, payer, Terms { rate: Rate::parse(rate).unwrap(), weight }, SuspendedTime::Held).unwrap()
}

fn statement(charges: &[Charge], credit_rate: Option<&CreditRate>) -> Statement {
    Statement::of(charges, &words(), &CreditRates::own(credit_rate.cloned())).unwrap().unwrap()
}

#[test]
fn rnd_01_the_list_of_seven_statements_shows_a_rounding_row() {
    let of_one_team = statement(&[a_charge(3_600_000_000, 1, "10", Workload::Training, 0)], None);
    assert_eq!(of_one_team.amount.to_string(), "1.43");
    let row = rounding_row(&vec![of_one_team.sums.exact; 7], &[of_one_team.amount; 7]).unwrap();
    assert_eq!(row.to_string(), "-0.01");
}

#[test]
fn rnd_03_a_thousand_tiny_charges_are_four_credits_however_they_are_grouped() {
    // 0.004 credits each: 14.4 s at 1 credit an hour.
    let charges: Vec<Charge> =
        (0..1000).map(|number| a_charge(14_400_000, 0, "1", Workload::ALL[number % 5], 0)).collect();
    assert_eq!(statement(&charges, None).amount.to_string(), "4.00");
}

#[test]
fn a_slice_counts_as_its_part_of_a_gpu_beside_the_hours_it_was_held() {
    let held = statement(&[a_charge(7 * 3_600_000_000, 2, "7", Workload::Serving, 0)], None);
    assert_eq!(held.sums.share_us, 7 * 3_600_000_000);
    assert_eq!(held.sums.gpu_us, Fraction::whole(3 * 3_600_000_000));
    assert_eq!(held.amount.to_string(), "21.00");
}

fn charges() -> impl Strategy<Value = Vec<Charge>> {
    let one =
        (1i64..400_000_000_000, 0i32..3, prop::sample::select(vec!["9.6", "0.333", "1.000000001"]), 0usize..5, 0i32..3);
    prop::collection::vec(one, 1..40).prop_map(|all| {
        all.into_iter()
            .map(|(share, sku, rate, workload, experiment)| {
                a_charge(share, sku, rate, Workload::ALL[workload], experiment)
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn every_printed_column_adds_up_in_every_order(charges in charges(), rotate in 0usize..40, rate in 1i64..5_000_000) {
        let rate = CreditRate { currency: "USD".into(), rate: Rate::parse(&format!("{}.{:06}", rate / 1_000_000, rate % 1_000_000)).unwrap() };
        let made = statement(&charges, Some(&rate));
        prop_assert_eq!(made.lines.iter().map(|line| line.amount.0).sum::<i128>(), made.amount.0);
        let currency: i128 = made.lines.iter().map(|line| line.currency_amount.unwrap().0).sum();
        prop_assert_eq!(currency, made.currency_amount.unwrap().0);
        let experiments = made.by_experiment(&charges, &words()).unwrap().unwrap();
        prop_assert_eq!(experiments.iter().map(|line| line.amount.0).sum::<i128>(), made.amount.0);
        prop_assert_eq!(experiments.iter().map(|line| line.currency_amount.unwrap().0).sum::<i128>(), currency);
        let mut turned = charges.clone();
        turned.rotate_left(rotate % charges.len());
        prop_assert_eq!(statement(&turned, Some(&rate)), made);
    }

    #[test]
    fn exact_totals_do_not_depend_on_grouping_and_charges_stay_near(charges in charges()) {
        let made = statement(&charges, None);
        let exact = Fraction::sum(charges.iter().map(|charge| charge.exact().unwrap())).unwrap();
        prop_assert_eq!(made.sums.exact, exact);
        let residue = exact.times(Fraction::whole(1_000_000)).unwrap().minus(Fraction::whole(made.sums.charged_micros)).unwrap();
        let bound = Fraction::new(i128::try_from(charges.len()).unwrap(), 2).unwrap();
        prop_assert!(residue <= bound && Fraction::ZERO.minus(residue).unwrap() <= bound);
    }
}
