//! Reading `/proc/PID/stat`.

/// What a process is doing, as far as it matters to who holds a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It runs, or waits for something.
    Alive,
    /// It was stopped by a signal, as Slurm suspends jobs.
    Stopped,
    /// It ended, and its parent has not asked for its result.
    Zombie,
}

/// What the kernel says of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The name of its program, which it may change: 15 bytes at most, any byte but zero.
    pub command: String,
    /// What it is doing.
    pub state: RunState,
    /// Its parent.
    pub parent: u32,
    /// When it started, in clock ticks since the boot.
    pub start_ticks: u64,
}

/// The text of a stat file could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatError;

impl std::fmt::Display for StatError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it is not of the form `PID (COMMAND) STATE PARENT …` of proc_pid_stat(5)")
    }
}

impl std::error::Error for StatError {}

/// The place of the start among the fields after the command: field 22 of all, of which the state is field 3.
const START_AFTER_COMMAND: usize = 19;

impl Stat {
    /// Reads the text of a stat file. The command may hold spaces, parentheses and line breaks: it ends at the last
    /// parenthesis.
    ///
    /// # Errors
    /// [`StatError`] where a field is missing or no number.
    pub fn parse(text: &str) -> Result<Stat, StatError> {
        let (_, rest) = text.split_once('(').ok_or(StatError)?;
        let (command, rest) = rest.rsplit_once(')').ok_or(StatError)?;
        let mut fields = rest.split_ascii_whitespace();
        let state = match fields.clone().next().ok_or(StatError)? {
            "T" | "t" => RunState::Stopped,
            "Z" | "X" | "x" => RunState::Zombie,
            _ => RunState::Alive,
        };
        let number = |text: Option<&str>| text.ok_or(StatError)?.parse::<u64>().map_err(|_| StatError);
        let parent = u32::try_from(number(fields.clone().nth(1))?).map_err(|_| StatError)?;
        let start_ticks = number(fields.nth(START_AFTER_COMMAND))?;
        Ok(Stat { command: command.to_owned(), state, parent, start_ticks })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_command_ends_at_the_last_parenthesis() {
        let line = "4242 (a) R 1 (b\n) S 17 4242 4242 0 -1 4194560 100 0 0 0 5 6 0 0 20 0 1 0 88010000 1000 10 18446744073709551615\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(
            stat,
            Stat { command: "a) R 1 (b\n".into(), state: RunState::Alive, parent: 17, start_ticks: 88_010_000 }
        );
        assert_eq!(Stat::parse(&line.replace(") S 17", ") T 17")).unwrap().state, RunState::Stopped);
        assert_eq!(Stat::parse(&line.replace(") S 17", ") Z 17")).unwrap().state, RunState::Zombie);
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let line = "1 (a) S 0 1 1 0 -1 4194560 100 0 0 0 5 6 0 0 20 0 1 0 7";
        assert!(Stat::parse(line).is_ok());
        for length in 0..line.len() {
            assert_eq!(Stat::parse(line.get(..length).unwrap()), Err(StatError), "{length}");
        }
        assert_eq!(Stat::parse(&line.replace(" 0 7", " 0 x")), Err(StatError));
    }
}
