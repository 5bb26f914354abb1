//! `gpuledger rules test`

use std::path::PathBuf;

use gpuledger_domain::rules::{Explanation, JobFacts, Outcome as RuleOutcome, Test};
use gpuledger_domain::time::Instant;

use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::files::{SourceText, rules};
use crate::workflows::books::Books;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Test the rules of this file instead of those in force
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The instant the job runs at, RFC 3339 [default: now]
    #[arg(long, value_name = "INSTANT")]
    at: Option<String>,
    /// The job's facts: cluster, pool, user, account, partition, qos, namespace, name, gpus or label.KEY
    #[arg(value_name = "FACT=VALUE", required = true)]
    facts: Vec<String>,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let calendar = &context.config.calendar;
    let at = match &arguments.at {
        None => crate::clock::now(),
        Some(text) => Instant::parse(text).map_err(|message| AppError::Refused(format!("--at: {message}")))?,
    };
    let facts = facts(&arguments.facts)?;
    let mut books = Books::in_force(&mut context.db()?, calendar)?;
    if let Some(path) = &arguments.file {
        books.rules = rules::parse(&SourceText::read(path)?, calendar)?;
    }
    let (attribution, explanations) = books.rules.explain(&facts, at, &books.teams);
    let mut text = format!(
        "team {}, workload {}, class {}, experiment {}\n",
        attribution.team,
        attribution.workload.as_str(),
        attribution.service_class.as_str(),
        attribution.experiment.as_deref().unwrap_or("none"),
    );
    for (number, explanation) in (1..).zip(&explanations) {
        text.push_str(&format!("{number:>4}. {}: {}\n", explanation.rule.name, words(explanation, &facts)));
    }
    print(&text)?;
    Ok(Outcome::Done)
}

fn words(explanation: &Explanation<'_>, facts: &JobFacts) -> String {
    match &explanation.outcome {
        RuleOutcome::Decided(what) => format!("matches, and decides the {}", what.join(", ")),
        RuleOutcome::NothingLeft => "matches, but rules before it said all that it says".into(),
        RuleOutcome::NotInForce => format!("not in force then ({})", explanation.rule.validity),
        RuleOutcome::NoSuchTeam(team) => format!("matches, but “{team}” is no team then"),
        RuleOutcome::Failed(condition) => {
            let wanted = match &condition.test {
                Test::AnyOf(texts) => texts.join(" or "),
                Test::AtLeast(number) => format!("at least {number}"),
                Test::AtMost(number) => format!("at most {number}"),
            };
            format!("no: {} is “{}”, not {wanted}", condition.fact, facts.text(&condition.fact))
        }
    }
}

fn facts(pairs: &[String]) -> Result<JobFacts, AppError> {
    let mut facts = JobFacts::default();
    for pair in pairs {
        let wrong = |reason: &str| AppError::Refused(format!("“{pair}”: {reason}; write facts like account=vision"));
        let (name, value) = pair.split_once('=').ok_or_else(|| wrong("there is no ="))?;
        let value = value.to_owned();
        match name {
            "cluster" => facts.cluster = value,
            "pool" => facts.pool = value,
            "user" => facts.user = value,
            "account" => facts.account = value,
            "partition" => facts.partition = value,
            "qos" => facts.qos = value,
            "namespace" => facts.namespace = value,
            "name" => facts.name = value,
            "gpus" => facts.gpus = value.parse().map_err(|_| wrong("gpus is a whole number"))?,
            _ => match name.strip_prefix("label.") {
                Some(key) => _ = facts.labels.insert(key.to_owned(), value),
                None => return Err(wrong("there is no such fact")),
            },
        }
    }
    Ok(facts)
}
