//! `gpuledger token`

use gpuledger_db::collector_token;
use gpuledger_domain::ids::ClusterName;
use serde_json::json;

use super::{Context, actor, print, tell};
use crate::clock;
use crate::error::{AppError, Outcome};
use crate::export::json::pretty;
use crate::export::table::Table;
use crate::workflows::collector_tokens::{self, NewToken, scope};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Make a token and print it, once: it is not stored and cannot be shown again
    Create(Create),
    /// Show which tokens there are, without their secrets
    List(List),
    /// Make a token void
    Revoke(Revoke),
}

#[derive(Debug, clap::Args)]
pub(super) struct Create {
    /// The cluster that it may report for
    #[arg(long, value_name = "NAME")]
    cluster: String,
    /// The only node that it may report for [default: any node of the cluster]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// What it is for, for whoever reads the list
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Revoke {
    /// Its id, as the list shows it: the second part of the token
    id: String,
}

pub(super) fn run(context: &Context, command: &Command) -> Result<Outcome, AppError> {
    match command {
        Command::Create(arguments) => create(context, arguments),
        Command::List(arguments) => list(context, arguments),
        Command::Revoke(arguments) => {
            let token = collector_tokens::revoke(&mut context.db()?, &arguments.id, &actor(), clock::now())?;
            print(&format!("The token {} for {} is void.\n", token.id, scope(&token)))?;
            Ok(Outcome::Done)
        }
    }
}

fn create(context: &Context, arguments: &Create) -> Result<Outcome, AppError> {
    let cluster =
        ClusterName::parse(&arguments.cluster).map_err(|reason| AppError::Refused(format!("--cluster: {reason}")))?;
    let (node, actor) = (arguments.node.as_deref().unwrap_or_default(), actor());
    let wanted = NewToken { cluster: &cluster, node, note: &arguments.note, actor: &actor };
    let (token, text) = collector_tokens::create(&mut context.db()?, &wanted, &mut random, clock::now())?;
    tell(&format!("The token {} for {}. It is shown this once:", token.id, scope(&token)));
    print(&format!("{text}\n"))?;
    Ok(Outcome::Done)
}

/// Random bytes of the operating system.
pub(super) fn random(bytes: &mut [u8]) -> Result<(), AppError> {
    getrandom::fill(bytes).map_err(|error| AppError::file("the operating system's random numbers", error))
}

fn list(context: &Context, arguments: &List) -> Result<Outcome, AppError> {
    let tokens = collector_token::all(&mut context.db()?)?;
    if arguments.json {
        let rows: Vec<_> = tokens
            .iter()
            .map(|token| {
                json!({
                    "id": token.id,
                    "cluster": token.cluster,
                    "node": (!token.node.is_empty()).then_some(&token.node),
                    "note": token.note,
                    "created_at": token.created_at.to_string(),
                    "created_by": token.created_by,
                    "revoked_at": token.revoked_at.map(|at| at.to_string()),
                    "last_used_at": token.last_used_at.map(|at| at.to_string()),
                })
            })
            .collect();
        print(&pretty(&json!(rows)))?;
        return Ok(Outcome::Done);
    }
    let mut table = Table::new(&["id", "for", "made", "by", "last used", "state", "note"]);
    for token in &tokens {
        let used = token.last_used_at.map_or_else(|| "never".to_owned(), |at| at.to_string());
        let state = token.revoked_at.map_or_else(|| "good".to_owned(), |at| format!("revoked {at}"));
        table.row([
            token.id.clone(),
            scope(token),
            token.created_at.to_string(),
            token.created_by.clone(),
            used,
            state,
            token.note.clone(),
        ]);
    }
    print(&table.text())?;
    Ok(Outcome::Done)
}
