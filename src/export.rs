//! Statements in every form people take them: text, CSV, JSON, HTML. Each form prints the same figures; none works
//! out a figure of its own.

pub mod agents;
pub mod capacity;
pub mod csv;
pub mod diff_json;
pub mod diff_text;
pub mod html;
pub mod json;
pub mod late;
pub mod live_page;
pub mod open_month;
pub mod reconciliation;
pub mod screen;
pub mod table;
pub mod text;
