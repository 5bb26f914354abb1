//! The program itself, run as people run it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::Books;

/// What a run printed, and how it ended.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// The program with these arguments, in the books' folder.
pub fn command(books: &Books, zone: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuledger"));
    command
        .args(arguments)
        .current_dir(books.folder.path())
        .env("GPULEDGER_DATABASE_URL", &books.url)
        .env("GPULEDGER_BILLING_ZONE", zone)
        .stdin(Stdio::null());
    command
}

pub fn run_in(books: &Books, zone: &str, arguments: &[&str]) -> Ran {
    ran(command(books, zone, arguments).output().unwrap())
}

/// In UTC.
pub fn run(books: &Books, arguments: &[&str]) -> Ran {
    run_in(books, "UTC", arguments)
}

pub fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ran {
    /// The output of a run that must have succeeded.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.code, 0, "exit code {}: {}{}", self.code, self.out, self.err);
        self.out
    }
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
