//! One thread writes reports, a group in each transaction, whatever number of requests wait for it. When it falls
//! behind, new reports are refused at once, and their collectors try again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use gpuledger_db::Db;
use gpuledger_domain::time::{Instant, SECOND_US};
use gpuledger_wire::{Answer, PROTOCOL, RefusalCode, Settings};
use tokio::sync::oneshot;

use super::metrics::Metrics;
use super::reports::Refused;
use crate::clock;
use crate::config::Config;
use crate::error::AppError;
use crate::import::report::NodeReport;
use crate::workflows::collector_settings::collector_settings;
use crate::workflows::ingest::{Ingest, Taken};
use crate::workflows::migrate;

/// Most reports that wait.
const WAITING_MAX: usize = 1_024;
/// Most bytes that they have unpacked; one report may wait whatever it has.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Most reports of one transaction.
const GROUP_MAX: usize = 64;
/// How long settings are told before they are read again.
const SETTINGS_US: i64 = 30 * SECOND_US;

type Reply = oneshot::Sender<Result<Answer, Refused>>;

/// A way to the writer.
#[derive(Clone, Debug)]
pub(super) struct IngestQueue {
    sender: SyncSender<(NodeReport, Reply)>,
    waiting_bytes: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
}

impl IngestQueue {
    /// Starts the writer. It ends when the last way to it is gone and all that waits is written.
    ///
    /// # Errors
    /// The database's, and the operating system's where it has no thread.
    pub(super) fn start(config: Config, metrics: Arc<Metrics>) -> Result<(IngestQueue, JoinHandle<()>), AppError> {
        let writer = Writer::open(config, Arc::clone(&metrics))?;
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let waiting_bytes = Arc::clone(&writer.waiting_bytes);
        let thread = std::thread::Builder::new().name("ingest".into()).spawn(move || writer.run(&receiver));
        Ok((IngestQueue { sender, waiting_bytes, metrics }, thread.map_err(|error| AppError::file("thread", error))?))
    }

    /// Stores a report; the answer comes when it is stored.
    pub(super) async fn store(&self, report: NodeReport) -> Result<Answer, Refused> {
        let (reply, answer) = oneshot::channel();
        let bytes = report.bytes;
        let before = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before > 0 && before.saturating_add(bytes) > WAITING_BYTES_MAX {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Refused::of(RefusalCode::Busy, "too much waits; try again later"));
        }
        self.metrics.waits();
        let sent = self.sender.try_send((report, reply));
        if sent.is_err() {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.metrics.waits_no_more();
        }
        match sent {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(Refused::failed())),
            Err(TrySendError::Full(_)) => Err(Refused::of(RefusalCode::Busy, "too many reports wait; try again later")),
            Err(TrySendError::Disconnected(_)) => Err(Refused::failed()),
        }
    }
}

struct Writer {
    metrics: Arc<Metrics>,
    config: Config,
    db: Option<Db>,
    ingest: Ingest,
    settings: Option<(Settings, Instant)>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl Writer {
    fn open(config: Config, metrics: Arc<Metrics>) -> Result<Writer, AppError> {
        let db = Some(migrate::open(&config.database, &config.calendar)?);
        let ingest = Ingest::new(config.calendar.clone(), config.default_pool.clone());
        Ok(Writer { metrics, config, db, ingest, settings: None, waiting_bytes: Arc::default() })
    }

    fn run(mut self, receiver: &Receiver<(NodeReport, Reply)>) {
        while let Ok(first) = receiver.recv() {
            let more = receiver.try_iter().take(GROUP_MAX - 1);
            let (reports, replies): (Vec<NodeReport>, Vec<Reply>) = std::iter::once(first).chain(more).unzip();
            let outcomes = self.take(&reports);
            self.waiting_bytes.fetch_sub(reports.iter().map(|report| report.bytes).sum(), Ordering::Relaxed);
            self.metrics.grouped(reports.len());
            for (outcome, reply) in outcomes.into_iter().zip(replies) {
                // Who went away sends the report again.
                let _ = reply.send(outcome);
            }
        }
    }

    /// Stores a group; where that fails, each report by itself, so that one cannot keep others from being stored.
    fn take(&mut self, reports: &[NodeReport]) -> Vec<Result<Answer, Refused>> {
        match self.try_take(reports) {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) if reports.len() > 1 => {
                tracing::warn!(%error, reports = reports.len(), "a group of reports failed; each is tried by itself");
                reports.iter().map(|report| self.take_alone(report)).collect()
            }
            Err(error) => vec![Err(refused(&error))],
        }
    }

    fn take_alone(&mut self, report: &NodeReport) -> Result<Answer, Refused> {
        let answers = self.try_take(std::slice::from_ref(report)).map_err(|error| refused(&error))?;
        answers.into_iter().next().ok_or_else(Refused::failed)
    }

    fn try_take(&mut self, reports: &[NodeReport]) -> Result<Vec<Answer>, AppError> {
        catch_unwind(AssertUnwindSafe(|| self.write(reports))).unwrap_or_else(|_| {
            // A defect. The transaction is undone with its connection, and with it what it numbered.
            self.ingest = Ingest::new(self.config.calendar.clone(), self.config.default_pool.clone());
            Err(AppError::Changed("the writer of reports ended by a defect".into()))
        })
    }

    fn write(&mut self, reports: &[NodeReport]) -> Result<Vec<Answer>, AppError> {
        // A connection that failed is not used again.
        let mut db = match self.db.take() {
            Some(db) => db,
            None => migrate::open(&self.config.database, &self.config.calendar)?,
        };
        let now = clock::now();
        let taken = self.ingest.take(&mut db, reports, now)?;
        let settings = self.settings(&mut db, now)?;
        self.db = Some(db);
        let answer = |Taken { records, head }| Answer { protocol: PROTOCOL, records, head, settings: settings.clone() };
        Ok(taken.into_iter().map(answer).collect())
    }

    fn settings(&mut self, db: &mut Db, now: Instant) -> Result<Settings, AppError> {
        let fresh =
            self.settings.as_ref().filter(|(_, at)| now.micros().abs_diff(at.micros()) < SETTINGS_US.unsigned_abs());
        if let Some((settings, _)) = fresh {
            return Ok(settings.clone());
        }
        let settings = collector_settings(db, &self.config.calendar, now)?;
        self.settings = Some((settings.clone(), now));
        Ok(settings)
    }
}

fn refused(error: &AppError) -> Refused {
    tracing::error!(%error, "a report could not be stored");
    match error {
        AppError::Database(gpuledger_db::DbError::Busy(_)) => Refused::of(RefusalCode::Busy, "the database is busy"),
        _ => Refused::failed(),
    }
}
