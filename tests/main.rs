//! All integration tests, one binary. Those that touch storage run on SQLite and on PostgreSQL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    unreachable_pub
)]

mod support;

mod agent;
mod agent_kills;
mod agents;
mod authority;
mod capacity;
mod catalogue_files;
mod clocks;
mod corrections;
mod crash;
mod diff;
mod frozen;
mod import_lists;
mod live;
mod open_cost;
mod philly;
mod properties;
mod reports;
mod reports_in_any_order;
mod sacct;
mod sacct_lists;
mod scenarios;
mod schema;
mod serve;
mod serve_pages;
mod simulation;
mod tidy;
mod traces;
mod web;
