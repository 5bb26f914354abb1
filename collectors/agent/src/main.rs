//! The agent of a node. See `--help`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use gpuledger_agent::config::Config;
use gpuledger_agent::delivery::{Delivery, Step};
use gpuledger_agent::metrics::Board;
use gpuledger_agent::node::{Looked, Node};
use gpuledger_agent::outbox::Outbox;
use gpuledger_agent::spool::{Found, Spool};
use gpuledger_agent::uplink::Uplink;
use gpuledger_agent::{metrics_server, print};
use gpuledger_wire::Clocks;
use nix::time::{ClockId, clock_gettime};

/// Reports who held which GPU, and which slice of it, to gpuledger.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// The settings.
    #[arg(long, default_value = "/etc/gpuledger/agent.toml")]
    config: PathBuf,
    /// The driver's library, instead of the one that the settings name.
    #[arg(long, value_name = "PATH")]
    nvml_library: Option<PathBuf>,
    /// Where processes are, instead of what the settings say.
    #[arg(long, value_name = "PATH")]
    proc: Option<PathBuf>,
    /// Says whether the settings, the driver and the host's processes can be read, and ends.
    #[arg(long)]
    check: bool,
    /// Looks once, prints what it sees as JSON, and ends.
    #[arg(long)]
    once: bool,
    /// Together with --once; JSON is the only form.
    #[arg(long, requires = "once")]
    json: bool,
    /// Prints reports, a line each, and sends none.
    #[arg(long)]
    dry_run: bool,
}

/// How often the end is looked for while nothing is to be done.
const PAUSE: Duration = Duration::from_millis(200);
/// For how long at the end what waits is still sent. The rest is sent after the next start.
const LAST_TRIES: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "gpuledger-agent: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let mut config = Config::read(&arguments.config)?;
    if let Some(library) = &arguments.nvml_library {
        config.nvml_library = Some(library.clone());
    }
    if let Some(proc) = &arguments.proc {
        config.proc.clone_from(proc);
    }
    let uplink = Uplink::new(&config)?;
    let random = getrandom::u32().map_err(|error| error.to_string())?;
    let boot_id = |error: std::io::Error| format!("{}/sys/kernel/random/boot_id: {error}", config.proc.display());
    let mut node = Node::begin(config.place()?, config.rules(), clocks()?, random).map_err(boot_id)?;
    if arguments.once || arguments.check {
        let looked = node.look(clocks()?);
        if arguments.once {
            print_line(&format!("{:#}", print::json(&looked)))?;
        } else {
            check(&looked, uplink.is_some())?;
        }
        let fine = looked.sweep.is_some() && looked.findings.is_empty();
        return Ok(if fine { ExitCode::SUCCESS } else { ExitCode::from(2) });
    }
    if uplink.is_none() && !arguments.dry_run {
        return Err("the settings name no service; set `service` and `token_file`, or use --dry-run".into());
    }
    match uplink.filter(|_| !arguments.dry_run) {
        Some(uplink) => watch_and_deliver(&config, &mut node, &uplink)?,
        None => watch(&config, &mut node, None)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What is to be sent, and who sends it.
struct Sending<'scope, 'outbox> {
    outbox: &'outbox Outbox,
    delivers: ScopedJoinHandle<'scope, ()>,
}

/// Tells an outbox, when this goes, that nothing more is put.
struct EndsWith<'outbox>(&'outbox Outbox);

impl Drop for EndsWith<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Looks and reports in this thread, and sends in another, until it is told to end.
fn watch_and_deliver(config: &Config, node: &mut Node, uplink: &Uplink) -> Result<(), String> {
    let folder = config.spool.display();
    let (spool, found) = Spool::open(&config.spool, config.spool_mib << 20).map_err(|error| {
        format!("{folder}: {error}; set `spool` to a folder of this node's disk that this agent alone may write")
    })?;
    if found != Found::default() {
        log_line(&format!(
            "{folder}: {} reports wait; {} bytes of one whose writing was cut off, {} other bytes that cannot be read, {} files that \
             cannot be read or find no room",
            found.reports, found.torn_bytes, found.damaged_bytes, found.left_files
        ));
    }
    let outbox = Outbox::new(spool, node.boot_id());
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("delivery".into());
        let delivers = thread.spawn_scoped(scope, || deliver(&outbox, uplink)).map_err(|error| error.to_string())?;
        // Whatever ends this, a panic too, ends the other.
        let _end = EndsWith(&outbox);
        watch(config, node, Some(&Sending { outbox: &outbox, delivers }))
    })
}

/// Sends what waits until the end, and for some seconds beyond.
fn deliver(outbox: &Outbox, uplink: &Uplink) {
    let (mut delivery, mut told, mut until) = (Delivery::default(), String::new(), None);
    loop {
        let ends = outbox.ends();
        if ends && Instant::now() >= *until.get_or_insert_with(|| Instant::now() + LAST_TRIES) {
            return;
        }
        let random = getrandom::u32().unwrap_or_default();
        let step = match clocks() {
            Ok(now) => delivery.step(outbox, now, random, |report| uplink.send(report)),
            Err(why) => Step::Wait { delay: PAUSE, why },
        };
        let said = match step {
            Step::Went(said) => said.unwrap_or_default(),
            Step::Nothing if ends => return,
            Step::Nothing => {
                outbox.wait();
                continue;
            }
            Step::Wait { why, .. } if ends => {
                return log_line(&format!("{why}; {} reports wait for the next start", outbox.tally().spool_reports));
            }
            Step::Wait { delay, why } => {
                if why != told {
                    log_line(&format!("{why}; {} reports wait on disk", outbox.tally().spool_reports));
                }
                outbox.pause(delay);
                told = why;
                continue;
            }
        };
        if !said.is_empty() && said != told {
            log_line(&said);
        }
        told = said;
    }
}

fn check(looked: &Looked, sends: bool) -> Result<(), String> {
    let devices = looked.sweep.as_ref().map_or(0, |sweep| sweep.devices.len());
    let sends = if sends { "reports would be sent" } else { "no service is named" };
    print_line(&format!("{devices} GPUs are seen; {sends}"))?;
    looked.findings.iter().try_for_each(|finding| print_line(finding))
}

/// Looks and reports until it is told to end.
fn watch(config: &Config, node: &mut Node, sending: Option<&Sending<'_, '_>>) -> Result<(), String> {
    let outbox = sending.map(|sending| sending.outbox);
    let ending = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ending)).map_err(|error| error.to_string())?;
    }
    let board = Arc::new(Mutex::new(Board { node: node.name().to_owned(), ..Board::default() }));
    if let Some(address) = config.metrics {
        let now_us = || clocks().map_or(0, |clocks| clocks.boot_us);
        let listens = metrics_server::serve(address, Arc::clone(&board), now_us)
            .map_err(|error| format!("metrics at {address}: {error}"))?;
        log_line(&format!("figures are at http://{listens}/metrics"));
    }
    let us = |seconds: u32| i64::from(seconds) * 1_000_000;
    let (sample_us, report_us) = (us(config.sample_seconds), us(config.report_seconds));
    let now = clocks()?.boot_us;
    let (mut next_look, mut next_report, mut told) = (now, now + report_us, Vec::new());
    let mut disk_told = Vec::new();
    loop {
        let at = clocks()?;
        let ends = ending.load(Ordering::Relaxed);
        if ends || at.boot_us >= next_look {
            if sending.is_some_and(|sending| sending.delivers.is_finished()) {
                return Err(
                    "what sends reports has failed; what is not sent is on disk, and the next start sends it".into()
                );
            }
            for answer in outbox.map(Outbox::answers).unwrap_or_default() {
                node.answered(&answer);
            }
            let looked = node.look(at);
            log(&mut told, &looked.findings);
            show(&board, node, outbox, Some((looked, at.boot_us)));
            next_look = (next_look + sample_us).max(at.boot_us);
        }
        if ends {
            node.end();
        }
        if ends || at.boot_us >= next_report {
            log(&mut disk_told, &report(node, at, outbox)?);
            show(&board, node, outbox, None);
            next_report = (next_report + report_us).max(at.boot_us);
        }
        if ends {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Puts what was seen and counted where it can be asked for. A look at which no driver answered leaves the one before.
fn show(board: &Mutex<Board>, node: &Node, outbox: Option<&Outbox>, looked: Option<(Looked, i64)>) {
    let Ok(mut board) = board.lock() else { return };
    board.counts.clone_from(node.counts());
    board.waiting = node.waiting();
    board.tally = outbox.map(Outbox::tally).unwrap_or_default();
    if let Some((looked, looked_us)) = looked.filter(|(looked, _)| looked.sweep.is_some()) {
        (board.looked, board.looked_us) = (looked, looked_us);
    }
}

/// Makes a report and keeps it to be sent, or prints it; what could not be written. Where the clock of the start was wrong and that of
/// now is another, it ends what is open and begins anew.
fn report(node: &mut Node, at: Clocks, outbox: Option<&Outbox>) -> Result<Vec<String>, String> {
    let Some(outbox) = outbox else {
        let report = node.report(at.boot_us);
        print_line(&serde_json::to_string(&report).map_err(|error| error.to_string())?)?;
        node.kept(&report);
        return Ok(Vec::new());
    };
    let is_misplaced = node.is_misplaced(at);
    if is_misplaced {
        node.end();
    }
    let kept = loop {
        let report = node.report(at.boot_us);
        let kept = outbox.put(report.clone(), node.clock_is_off());
        if kept.finished {
            node.kept(&report);
        }
        // A report has room for so many.
        if !kept.finished || node.waiting() == 0 {
            break kept;
        }
    };
    if is_misplaced && kept.finished {
        log_line("the clock was wrong when this began to look, and is another now: it begins anew");
        node.begin_anew(at, getrandom::u32().map_err(|error| error.to_string())?);
    }
    Ok(kept.failures)
}

/// Logs what is wrong when it begins to be.
fn log(told: &mut Vec<String>, findings: &[String]) {
    for finding in findings.iter().filter(|finding| !told.contains(finding)) {
        log_line(finding);
    }
    findings.clone_into(told);
}

fn log_line(text: &str) {
    let _ = writeln!(std::io::stderr(), "gpuledger-agent: {text}");
}

fn print_line(text: &str) -> Result<(), String> {
    writeln!(std::io::stdout(), "{text}").map_err(|error| error.to_string())
}

/// The wall clock and the boot-time clock, read together.
fn clocks() -> Result<Clocks, String> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    let boot = clock_gettime(ClockId::CLOCK_BOOTTIME).map_err(|error| error.to_string())?;
    let boot_us = boot.tv_sec().saturating_mul(1_000_000).saturating_add(boot.tv_nsec() / 1_000);
    Ok(Clocks { wall_us: i64::try_from(wall.as_micros()).map_err(|error| error.to_string())?, boot_us })
}
