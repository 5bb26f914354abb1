//! `gpuledger node`

use gpuledger_domain::time::Instant;

use super::{Context, actor, print};
use crate::clock;
use crate::error::{AppError, Outcome};
use crate::workflows::retire_node::retire;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Say that a node is no more, so that its silence is not unobserved time
    Retire(Retire),
}

#[derive(Debug, clap::Args)]
pub(super) struct Retire {
    /// Its name
    node: String,
    /// Its cluster
    #[arg(long, value_name = "NAME")]
    cluster: String,
    /// Since when, RFC 3339 [default: now]
    #[arg(long, value_name = "INSTANT", conflicts_with = "undo")]
    at: Option<String>,
    /// It is in use after all
    #[arg(long)]
    undo: bool,
}

pub(super) fn run(context: &Context, command: &Command) -> Result<Outcome, AppError> {
    let Command::Retire(arguments) = command;
    let now = clock::now();
    let at = match &arguments.at {
        _ if arguments.undo => None,
        None => Some(now),
        Some(text) => Some(Instant::parse(text).map_err(|message| AppError::Refused(format!("--at: {message}")))?),
    };
    let named = (arguments.cluster.as_str(), arguments.node.as_str());
    retire(&mut context.db()?, &context.config.calendar, named, at, (&actor(), now))?;
    match at {
        Some(at) => print(&format!("{} of cluster {} is no more, from {at} on.\n", arguments.node, arguments.cluster))?,
        None => print(&format!("{} of cluster {} is in use.\n", arguments.node, arguments.cluster))?,
    }
    Ok(Outcome::Done)
}
