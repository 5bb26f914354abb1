//! What the service counts of itself, for Prometheus. `GET /metrics` answers on loopback names only, as pages do: the
//! figures say how busy a company is.

use std::sync::Arc;

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use gpuledger_wire::{Answer, Outcome};
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

use super::answers::{Failure, is_loopback_name};
use crate::error::AppError;

/// The counts of one process.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    reports: IntCounterVec,
    records: IntCounterVec,
    waiting: IntGauge,
    transactions: IntCounter,
    days: IntCounter,
    priced: IntCounter,
    checked: IntCounter,
    differences: IntCounter,
    rolled_up_at: IntGauge,
}

impl Metrics {
    /// All at zero.
    ///
    /// # Errors
    /// Where a name is none, or is there twice.
    pub(super) fn new() -> Result<Arc<Metrics>, AppError> {
        let made = || -> Result<Metrics, prometheus::Error> {
            let by_outcome = |name: &str, help: &str| IntCounterVec::new(Opts::new(name, help), &["outcome"]);
            let metrics = Metrics {
                registry: Registry::new(),
                reports: by_outcome("gpuledger_reports_total", "Reports that came, by what came of them.")?,
                records: by_outcome(
                    "gpuledger_report_records_total",
                    "Finished segments in reports, by what came of them.",
                )?,
                waiting: IntGauge::new("gpuledger_reports_waiting", "Reports that wait to be stored.")?,
                transactions: IntCounter::new(
                    "gpuledger_ingest_transactions_total",
                    "Transactions in which reports were stored.",
                )?,
                days: IntCounter::new("gpuledger_roll_ups_total", "Billing days of nodes that were summed.")?,
                priced: IntCounter::new("gpuledger_repricings_total", "Billing days of open months that were priced.")?,
                checked: IntCounter::new(
                    "gpuledger_recomputations_total",
                    "Days that were worked out again only to be compared with what is held.",
                )?,
                differences: IntCounter::new(
                    "gpuledger_recompute_differences_total",
                    "Of those, days that were not what they should be.",
                )?,
                rolled_up_at: IntGauge::new(
                    "gpuledger_roll_up_timestamp_seconds",
                    "When all that was marked had been summed last, in seconds since 1970.",
                )?,
            };
            metrics.registry.register(Box::new(metrics.reports.clone()))?;
            metrics.registry.register(Box::new(metrics.records.clone()))?;
            metrics.registry.register(Box::new(metrics.waiting.clone()))?;
            metrics.registry.register(Box::new(metrics.transactions.clone()))?;
            metrics.registry.register(Box::new(metrics.days.clone()))?;
            metrics.registry.register(Box::new(metrics.priced.clone()))?;
            metrics.registry.register(Box::new(metrics.checked.clone()))?;
            metrics.registry.register(Box::new(metrics.differences.clone()))?;
            metrics.registry.register(Box::new(metrics.rolled_up_at.clone()))?;
            Ok(metrics)
        };
        made().map(Arc::new).map_err(|error| AppError::file("metrics", error))
    }

    /// Days of open months were priced.
    pub(super) fn repriced(&self, days: usize) {
        self.priced.inc_by(u64::try_from(days).unwrap_or(u64::MAX));
    }

    /// Days were compared with what is held.
    pub(super) fn checked(&self, days: usize, differences: usize) {
        self.checked.inc_by(u64::try_from(days).unwrap_or(u64::MAX));
        self.differences.inc_by(u64::try_from(differences).unwrap_or(u64::MAX));
    }

    /// A report was taken.
    pub(super) fn taken(&self, answer: &Answer) {
        self.reports.with_label_values(&["taken"]).inc();
        for record in &answer.records {
            let outcome = match record.outcome {
                Outcome::Accepted => "accepted",
                Outcome::Known => "known",
                Outcome::Conflict => "conflict",
                Outcome::Quarantined => "quarantined",
                Outcome::Rejected => "rejected",
            };
            self.records.with_label_values(&[outcome]).inc();
        }
    }

    /// A report was refused, with this code.
    pub(super) fn refused(&self, code: &str) {
        self.reports.with_label_values(&[code]).inc();
    }

    /// A report waits to be stored.
    pub(super) fn waits(&self) {
        self.waiting.inc();
    }

    /// A report does not wait after all.
    pub(super) fn waits_no_more(&self) {
        self.waiting.dec();
    }

    /// So many reports were stored, or failed to be, in one transaction.
    pub(super) fn grouped(&self, reports: usize) {
        self.transactions.inc();
        self.waiting.sub(i64::try_from(reports).unwrap_or(i64::MAX));
    }

    /// So many days were summed, and none is left that was marked before this instant, in microseconds.
    pub(super) fn rolled_up(&self, days: usize, at_us: i64) {
        self.days.inc_by(u64::try_from(days).unwrap_or(u64::MAX));
        self.rolled_up_at.set(at_us / 1_000_000);
    }

    fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

pub(super) async fn show(request: HttpRequest, metrics: Data<Metrics>) -> Result<HttpResponse, Failure> {
    if !is_loopback_name(request.headers()) || !request.peer_addr().is_some_and(|peer| peer.ip().is_loopback()) {
        return Err(Failure::NothingHere);
    }
    match metrics.text() {
        Ok(text) => Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(text)),
        Err(error) => {
            tracing::error!(%error, "metrics could not be written");
            Err(Failure::Failed)
        }
    }
}
