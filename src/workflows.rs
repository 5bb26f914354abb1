//! One use case a file. A workflow takes a connection, the time and what it is asked; it decides what is one
//! transaction. It prints nothing and knows no page, no argument and no HTTP.

pub mod adjustments;
pub mod agents;
pub mod apply_catalogue;
pub mod books;
pub mod capacity;
pub mod close;
pub mod collector_settings;
pub mod collector_tokens;
pub mod counted;
pub mod diff_catalogue;
pub mod ends;
pub mod evidence;
pub mod examine;
pub mod held_now;
pub mod import_events;
pub mod import_jobs;
pub mod ingest;
pub mod inventory;
mod job_facts;
pub mod job_history;
pub mod late_facts;
pub mod migrate;
pub mod open_month;
pub mod pools;
pub mod price_period;
pub mod recompute;
pub mod reconcile;
pub mod reprice;
pub mod retire_node;
pub mod roll_up;
pub mod statements;
pub mod usage_report;
