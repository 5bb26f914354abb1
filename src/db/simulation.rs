//! A database that ends its process, for simulations: what is not committed then must not be seen again.

use diesel::connection::{Connection, InstrumentationEvent};

use crate::{Db, on_db};

/// What unwinds where a simulated process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Died;

impl Db {
    /// Ends the simulated process that uses this connection at its `statement`-th statement from now, counted from 1,
    /// beginnings and commits of transactions included, before it is run: the stack is unwound with [`Died`], without
    /// a message. Whoever catches that drops the connection, as the operating system would.
    pub fn die_at(&mut self, statement: u64) {
        let mut left = statement;
        let count = move |event: InstrumentationEvent<'_>| {
            if matches!(event, InstrumentationEvent::StartQuery { .. }) {
                left = left.saturating_sub(1);
                if left == 0 {
                    std::panic::resume_unwind(Box::new(Died));
                }
            }
        };
        on_db!(self, connection => connection.set_instrumentation(count));
    }
}
