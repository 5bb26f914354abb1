//! `gpuledger import events`

use gpuledger_domain::ids::{ClusterName, LENGTH_BYTES_MAX};

use super::{Context, actor, print, tell};
use crate::error::{AppError, Outcome};
use crate::import::InputFile;
use crate::import::event_list::EventFormat;
use crate::workflows::import_events::{ImportEvents, import_events};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The cluster the nodes belong to, as the lists of jobs call it
    #[arg(long, value_name = "CLUSTER")]
    cluster: String,
    /// What the list itself calls the cluster, if that is another name
    #[arg(long, value_name = "NAME")]
    called: Option<String>,
    /// The IANA zone in which the list was written; needed for times without an offset
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// What stands between columns: one character
    #[arg(long, value_name = "CHARACTER", default_value = "|")]
    delimiter: String,
    /// The list, plain or packed by gzip or zstd; - is standard input
    file: String,
}

/// Nodes that are named; others are counted.
const SHOWN_MAX: usize = 5;

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let name = |option: &str, text: &str| {
        ClusterName::parse(text).map_err(|message| AppError::Refused(format!("{option}: {message}")))
    };
    let cluster = name("--cluster", &arguments.cluster)?;
    let delimiter = match arguments.delimiter.as_bytes() {
        [byte] if byte.is_ascii() && !byte.is_ascii_alphanumeric() => *byte,
        _ => {
            let message = format!("--delimiter: “{}” is not one character such as |", arguments.delimiter);
            return Err(AppError::Refused(message));
        }
    };
    let called = match &arguments.called {
        Some(text) => name("--called", text)?,
        None => cluster.clone(),
    };
    let format = EventFormat { cluster: called, zone: arguments.zone.clone(), delimiter };
    let file = InputFile::open(&arguments.file)?;
    let mut db = context.db()?;
    let ask = ImportEvents { cluster: &cluster, format: &format, actor: &actor() };
    let imported = import_events(&mut db, &file, &ask, crate::clock::now(), |line| {
        let field = if line.field.is_empty() { String::new() } else { format!("{}: ", line.field) };
        tell(&format!("{}:{}: {field}{}", file.name, line.line, line.reason));
    })?;
    let counts = imported.counts;
    let mut text = format!(
        "{}: {} lines: {} events new, {} known, {} revised, {} lines of nothing out of service, {} refused\n",
        file.name, counts.lines, counts.added, counts.known, counts.revised, imported.aside, counts.refused
    );
    if counts.running > 0 {
        text += &format!(
            "{} of the nodes are still out of service; import a later list when they are back.\n",
            counts.running
        );
    }
    if imported.cut_reasons > 0 {
        text += &format!("{} reasons had more than {LENGTH_BYTES_MAX} bytes and were cut.\n", imported.cut_reasons);
    }
    if !imported.unknown_nodes.is_empty() {
        let first: Vec<&str> = imported.unknown_nodes.iter().take(SHOWN_MAX).map(String::as_str).collect();
        let more = if imported.unknown_nodes.len() > SHOWN_MAX { ", …" } else { "" };
        text += &format!(
            "{} nodes of cluster {cluster} are not in the inventory, so that their events count nowhere: {}{more}\n",
            imported.unknown_nodes.len(),
            first.join(", ")
        );
    }
    print(&text)?;
    Ok(if counts.refused > 0 { Outcome::DoneWithRefusals } else { Outcome::Done })
}
