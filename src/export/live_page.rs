//! The page of what is held now, for the demonstration's scripted node.

use askama::Template;
use gpuledger_domain::metering::State;
use gpuledger_domain::money::Printed;
use gpuledger_domain::time::Instant;
use gpuledger_domain::units::Fraction;

use super::screen::grouped;
use crate::config::Config;
use crate::error::AppError;
use crate::workflows::held_now::{NodeNow, UnitNow};
use crate::workflows::open_month::OpenMonth;
use crate::workflows::statements::seconds;

/// What the page needs besides those of statements, as (name, type, bytes).
pub const ASSET: (&str, &str, &[u8]) =
    ("live.js", "text/javascript; charset=utf-8", include_bytes!("../../static/live.js"));

#[derive(Template)]
#[template(path = "live.html")]
struct LivePage<'a> {
    assets: &'a str,
    list_link: &'a str,
    notice: Option<&'a str>,
    symbol: &'a str,
    month: String,
    priced: String,
    nodes: Vec<NodeTexts>,
    costs: Vec<CostTexts>,
    total_seconds: String,
    total_amount: String,
}

struct NodeTexts {
    name: String,
    told: String,
    gpus: Vec<GpuTexts>,
    rows: Vec<UnitTexts>,
}

struct GpuTexts {
    sentence: String,
    parts: Vec<PartTexts>,
}

struct PartTexts {
    class: &'static str,
    x: i32,
    width: i32,
}

struct UnitTexts {
    gpu: String,
    profile: String,
    compute: String,
    class: &'static str,
    state: &'static str,
    job: String,
    account: String,
    since: String,
}

struct CostTexts {
    team: String,
    sku: String,
    seconds: String,
    amount: String,
}

/// The page.
///
/// # Errors
/// A number that cannot be held.
pub fn page(config: &Config, nodes: &[NodeNow], month: &OpenMonth) -> Result<String, AppError> {
    let mut exact = Vec::new();
    let mut shares = Vec::new();
    for sums in month.rows.values() {
        exact.push(sums.amount().fraction());
        shares.push(seconds(Fraction::whole(sums.share_us))?);
    }
    let (amounts, shares) = (Printed::<6>::column(&exact)?, Printed::<0>::column(&shares)?);
    let figures = amounts.parts.iter().zip(&shares.parts);
    let costs = month.rows.iter().zip(figures).map(|((key, sums), (amount, share))| CostTexts {
        team: key.team.to_string(),
        sku: key.sku.to_string(),
        seconds: grouped(*share),
        amount: if sums.lacks_a_price { "unpriced".into() } else { grouped(*amount) },
    });
    let page = LivePage {
        assets: "/static",
        list_link: "/statements",
        notice: config.notice.as_deref(),
        symbol: &config.credit.symbol,
        month: format!("{} {}", month.month.name(), month.month.year()),
        priced: match month.priced_at {
            None => "Nothing is priced yet: that is done every ten seconds.".into(),
            Some(_) => "Finished pieces of time, at today's prices; what is open comes when it ends.".into(),
        },
        nodes: nodes.iter().map(node).collect(),
        costs: costs.collect(),
        total_seconds: grouped(shares.total),
        total_amount: grouped(amounts.total),
    };
    page.render().map_err(|error| AppError::Refused(format!("a page cannot be written: {error}")))
}

/// How wide a GPU is drawn.
const WIDTH: i32 = 700;

fn node(node: &NodeNow) -> NodeTexts {
    let mut gpus = Vec::new();
    for units in node.units.chunk_by(|a, b| a.gpu == b.gpu) {
        let Some(first) = units.first() else { continue };
        let (mut x, mut parts, mut words) = (0, Vec::new(), Vec::new());
        for unit in units {
            let width = WIDTH * unit.compute.part() / unit.compute.whole();
            parts.push(PartTexts { class: class(unit.state), x, width });
            x += width;
            let who = unit.job.as_ref().map_or(unit.state.as_str(), |(job, _)| job);
            words.push(format!("{} {who}", unit.profile));
        }
        gpus.push(GpuTexts { sentence: format!("{}: {}", first.gpu, words.join(", ")), parts });
    }
    let rows = node.units.iter().map(row).collect();
    NodeTexts { name: node.node.clone(), told: clock_time(node.until), gpus, rows }
}

/// The time of day, in UTC, to the second: what is shown is of this hour.
fn clock_time(instant: Instant) -> String {
    let text = instant.to_string();
    format!("{} UTC", text.get(11..19).unwrap_or(&text))
}

const fn class(state: State) -> &'static str {
    match state {
        State::Held => "held",
        State::Idle => "idle",
        State::Stranded => "stranded",
        State::OutOfService | State::Unobserved => "out-of-service",
    }
}

fn row(unit: &UnitNow) -> UnitTexts {
    let (job, account) = unit.job.clone().unwrap_or_default();
    UnitTexts {
        gpu: unit.gpu.clone(),
        profile: unit.profile.clone(),
        compute: format!("{} of {}", unit.compute.part(), unit.compute.whole()),
        class: class(unit.state),
        state: match unit.state {
            State::Held => "held",
            State::Idle => "idle",
            State::Stranded => "stranded",
            State::OutOfService => "being cut, or lost",
            State::Unobserved => "not observed",
        },
        job,
        account,
        since: clock_time(unit.since),
    }
}
