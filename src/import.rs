//! Other systems' exports, read as streams in constant memory. A reader gives records or says what is wrong with a
//! line; it decides nothing and stores nothing.

pub mod event_list;
pub mod job_list;
pub mod job_record;
mod repeats;
pub mod report;
pub mod sacct;
mod stream;
mod time_text;

use crate::files::host_list;

pub use repeats::{Ordinals, RepeatFinder, RowHash};
pub use stream::InputFile;
