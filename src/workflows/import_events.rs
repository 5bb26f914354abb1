//! Nodes out of service, from a scheduler's list. An event is a node and a start: of several tellings the later end
//! wins, and an end that is known goes before one that is not, in whatever order the lists come.

use std::collections::{BTreeSet, HashMap};

use gpuledger_db::dimensions::{self, ClusterId, NodeKind};
use gpuledger_db::import_log::{self, ImportCounts};
use gpuledger_db::node_event::{self, NodeEvent};
use gpuledger_db::{Db, allocation};
use gpuledger_domain::ids::{ClusterName, NodeId};
use gpuledger_domain::time::Instant;

use super::import_jobs::finish;
use super::inventory;
use crate::error::AppError;
use crate::import::InputFile;
use crate::import::event_list::{EventFormat, EventLine, EventListReader, EventRecord};
use crate::import::job_record::RefusedLine;

/// What is asked of an import.
#[derive(Clone, Copy, Debug)]
pub struct ImportEvents<'a> {
    /// The cluster, as the books call it.
    pub cluster: &'a ClusterName,
    /// How the list is read.
    pub format: &'a EventFormat,
    /// Who imports.
    pub actor: &'a str,
}

/// What came of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedEvents {
    /// What came of lines and, where a line names several nodes, of each node's event.
    pub counts: ImportCounts,
    /// Lines that tell of no node out of service.
    pub aside: i64,
    /// Reasons that were too long and were cut.
    pub cut_reasons: u64,
    /// Nodes that the inventory in force, if there is one, does not know: their events count nowhere.
    pub unknown_nodes: BTreeSet<String>,
}

/// Events of one transaction.
const CHUNK_EVENTS: usize = 8_192;

/// Imports a list of events. `refused` is told each line that cannot be used.
///
/// # Errors
/// The file's or the database's. Chunks done before stay done, and the same command goes on from there.
pub fn import_events(
    db: &mut Db,
    file: &InputFile,
    ask: &ImportEvents<'_>,
    now: Instant,
    mut refused: impl FnMut(&RefusedLine),
) -> Result<ImportedEvents, AppError> {
    let mut reader = EventListReader::open(file, ask.format)?;
    let import_id = db.transaction(|db| import_log::begin(db, &file.name, ask.actor, now))?;
    let mut imported = ImportedEvents::default();
    let mut nodes = HashMap::new();
    let (mut chunk, mut events, mut end) = (Vec::new(), 0, false);
    while !end {
        let line = reader.next();
        imported.counts.lines += i64::from(line.is_some());
        match line.map(|line| line.and_then(|line| checked(line, now))) {
            Some(Ok(EventLine::Event(record))) => {
                events += record.nodes.len();
                chunk.push(record);
            }
            Some(Ok(EventLine::Aside)) => imported.aside += 1,
            Some(Err(line)) => {
                imported.counts.refused += 1;
                refused(&line);
            }
            None => end = true,
        }
        if events >= CHUNK_EVENTS || end {
            let counts = db.transaction(|db| take_chunk(db, ask.cluster, &chunk, &mut nodes, import_id))?;
            imported.counts.added += counts.added;
            imported.counts.known += counts.known;
            imported.counts.revised += counts.revised;
            imported.counts.running += counts.running;
            chunk.clear();
            events = 0;
        }
    }
    imported.cut_reasons = reader.cut_reasons();
    let inventory = inventory::in_force(db)?;
    if !inventory.is_empty() {
        let unknown = nodes.into_keys().filter(|node| !inventory.knows(ask.cluster, node));
        imported.unknown_nodes = unknown.collect();
    }
    db.transaction(|db| finish(db, (ask.actor, "import events", &file.name), import_id, &imported.counts, now))?;
    let ImportCounts { lines, added, known, revised, refused, .. } = imported.counts;
    tracing::info!(file = %file.name, lines, added, known, revised, refused, "events imported");
    Ok(imported)
}

/// Nobody knows what is still to come.
fn checked(line: EventLine, now: Instant) -> Result<EventLine, RefusedLine> {
    let EventLine::Event(record) = &line else { return Ok(line) };
    let late = [("TimeStart", Some(record.start)), ("TimeEnd", record.end)]
        .into_iter()
        .find_map(|(field, at)| at.filter(|at| *at > now).map(|at| (field, at)));
    match late {
        None => Ok(line),
        Some((field, at)) => Err(RefusedLine {
            line: record.line,
            field: field.to_owned(),
            reason: format!("{at} is still to come; correct the line, or the zone"),
        }),
    }
}

fn take_chunk(
    db: &mut Db,
    cluster_name: &ClusterName,
    records: &[EventRecord],
    nodes: &mut HashMap<String, NodeId>,
    import_id: i64,
) -> Result<ImportCounts, AppError> {
    allocation::lock_imports(db)?;
    let cluster: ClusterId = dimensions::intern_cluster(db, cluster_name)?;
    let mut counts = ImportCounts::default();
    for record in records {
        for name in &record.nodes {
            let node = match nodes.get(name) {
                Some(node) => *node,
                None => {
                    let node = dimensions::intern_node(db, cluster, name, NodeKind::Machine)?;
                    nodes.insert(name.clone(), node);
                    node
                }
            };
            let (state, reason) = (record.state.clone(), record.reason.clone());
            let told = NodeEvent { node, start: record.start, end: record.end, state, reason };
            let known = node_event::find(db, node, record.start)?;
            let counted = match &known {
                None => &mut counts.added,
                Some(known) if tells_more(&told, known) => &mut counts.revised,
                Some(_) => {
                    counts.known += 1;
                    continue;
                }
            };
            *counted += 1;
            counts.running += i64::from(told.end.is_none());
            node_event::store(db, &told, import_id)?;
        }
    }
    Ok(counts)
}

/// Whether one telling of an event stands before another, whichever came first: by its end, then by its words.
fn tells_more(told: &NodeEvent, known: &NodeEvent) -> bool {
    (told.end, &told.state, &told.reason) > (known.end, &known.state, &known.reason)
}
