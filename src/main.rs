//! The binary: reads arguments, runs a command, ends with its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpuledger::cli::main()
}
