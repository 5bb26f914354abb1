//! The agent and the service as they are started, with a network between them that loses answers, doubles and mixes reports: either is
//! killed at any moment, and what the agent had recorded is in the books, once.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpuledger::workflows::reconcile::reconcile;
use gpuledger::workflows::roll_up;
use gpuledger_agent::spool::Spool;
use gpuledger_db::{check, usage};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::metering::State;
use gpuledger_domain::time::{Instant, Interval};
use gpuledger_wire::{Clocks, Outcome, Report};

use crate::agent::{BOOTED_FOR, Machine};
use crate::crash::Moments;
use crate::serve::{now, serve, token};
use crate::support::reports::{ingest, take};
use crate::support::{Books, on_both};

/// One GPU that is held throughout, and one that two jobs take from each other each second.
fn devices() -> String {
    let device = |index: usize| {
        format!(
            "[[device]]\nname = \"NVIDIA A10\"\nuuid = \"GPU-{index}\"\npci = \"00000000:0{index}:00.0\"\nmemory_mib = 23028\n"
        )
    };
    let held = |at: usize, pid: u32| format!("[[device.state]]\nat = {at}\n[[device.state.process]]\npid = {pid}\n");
    let taken_over: String = (0..80).map(|second| held(second, if second % 2 == 0 { 200 } else { 300 })).collect();
    format!("{}{}{}{taken_over}", device(0), held(0, 100), device(1))
}

/// The agent on its machine, started anew after each kill.
struct Agent {
    machine: Machine,
    child: Option<Child>,
}

impl Agent {
    fn new(service: SocketAddr, token: &str) -> Agent {
        let machine = Machine::new(&devices());
        let uptime = fs::read_to_string("/proc/uptime").unwrap();
        let booted_for: i64 = uptime.split('.').next().unwrap().parse().unwrap();
        for (pid, job) in [(100, "1"), (200, "2"), (300, "3")] {
            machine.process(pid, job, "a", booted_for - BOOTED_FOR - 1);
        }
        fs::write(machine.file("token"), token).unwrap();
        let file = |name: &str| machine.file(name).display().to_string();
        let settings = format!(
            "cluster = \"c\"\nnode = \"n1\"\nservice = \"http://{service}\"\ntoken_file = \"{}\"\nspool = \"{}\"\nproc = \"{}\"\nnvml_library = \"{}\"\nsample_seconds = 1\nreport_seconds = 1\n",
            file("token"),
            file("spool"),
            file("proc"),
            file("node.so")
        );
        fs::write(machine.file("agent.toml"), settings).unwrap();
        Agent { machine, child: None }
    }

    fn start(&mut self) {
        let program = std::env::current_exe().unwrap().parent().unwrap().with_file_name("gpuledger-agent");
        assert!(program.exists(), "{} is not built: cargo build --workspace", program.display());
        let mut command = Command::new(program);
        command.arg("--config").arg(self.machine.file("agent.toml")).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn has_kept_a_report(&self) {
        let kept = (0..1_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            self.machine.file("spool/open").exists()
        });
        assert!(kept, "no report in ten seconds");
    }

    fn ends_in_order(&mut self) {
        let mut child = self.child.take().unwrap();
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// What it would send after a start, from a copy of its folder.
    fn recorded(&self) -> Vec<Report> {
        let spool = self.machine.file("spool");
        if !spool.exists() {
            return Vec::new();
        }
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(spool).unwrap().map(Result::unwrap) {
            if !["lock", "reserve"].iter().any(|name| entry.file_name() == *name) {
                fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
            }
        }
        let (spool, found) = Spool::open(copy.path(), u64::MAX).unwrap();
        assert_eq!(found.damaged_bytes, 0, "{found:?}");
        let mut place = spool.after(None);
        let mut reports = Vec::new();
        while let Some(at) = place {
            reports.push(spool.read(at).unwrap().unwrap().report);
            place = spool.after(place);
        }
        reports
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Stands between agent and service.
struct Network {
    service: SocketAddr,
    /// Whether everything goes through as it should.
    good: AtomicBool,
    moments: Mutex<Moments>,
    /// Reports that were held back to come after later ones.
    late: Mutex<Vec<Vec<u8>>>,
    faults: AtomicU64,
}

impl Network {
    /// Serves from a thread of its own, for as long as the test runs; where.
    fn begin(service: SocketAddr, moments: Moments) -> (SocketAddr, Arc<Network>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let network = Arc::new(Network {
            service,
            good: AtomicBool::new(false),
            moments: Mutex::new(moments),
            late: Mutex::default(),
            faults: AtomicU64::new(0),
        });
        let serving = Arc::clone(&network);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let network = Arc::clone(&serving);
                std::thread::spawn(move || network.pass(stream));
            }
        });
        (address, network)
    }

    /// Passes one request, or does to it what networks do.
    fn pass(&self, mut client: TcpStream) -> Option<()> {
        client.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let request = request(&mut client)?;
        let fault = self.moments.lock().unwrap().below(10);
        if self.good.load(Ordering::Relaxed) || fault > 3 {
            let answer = self.ask(&request)?;
            client.write_all(&answer).ok()?;
            // What was held back comes after what was sent later.
            let late = std::mem::take(&mut *self.late.lock().unwrap());
            late.iter().for_each(|request| drop(self.ask(request)));
            return Some(());
        }
        self.faults.fetch_add(1, Ordering::Relaxed);
        match fault {
            // The answer is lost.
            0 => drop(self.ask(&request)?),
            // It comes twice.
            1 => {
                self.ask(&request)?;
                client.write_all(&self.ask(&request)?).ok()?;
            }
            // It comes much later, and the sender knows nothing of it.
            2 => self.late.lock().unwrap().push(request),
            // It is lost.
            _ => {}
        }
        Some(())
    }

    fn ask(&self, request: &[u8]) -> Option<Vec<u8>> {
        let mut stream = TcpStream::connect(self.service).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(request).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        (!answer.is_empty()).then_some(answer)
    }
}

/// Reads a request; whoever passes it on gets one answer and the end of the connection.
fn request(client: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4_096]);
    loop {
        let end = bytes.windows(4).position(|at| at == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
            if bytes.len() >= end + 4 + length.unwrap_or(0) {
                bytes.splice(end..end, b"\r\nConnection: close".iter().copied());
                return Some(bytes);
            }
        }
        let read = client.read(&mut part).ok().filter(|read| *read > 0)?;
        bytes.extend(&part[..read]);
    }
}

/// The files of the agent's folder that end so.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

fn either_is_killed_two_hundred_times_and_nothing_recorded_is_lost_or_double(books: Books) {
    let books = books.migrated("UTC");
    let began = now();
    let mut served = serve(&books, "127.0.0.1:0");
    let (network_at, network) = Network::begin(served.address(), Moments::from_environment());
    let mut agent = Agent::new(network_at, &token(&books, &["--cluster", "c", "--node", "n1"]));
    let mut moments = Moments::from_environment();
    let mut recorded = Vec::new();
    agent.start();
    for _ in 0..200 {
        // Long enough for some starts of the agent to look, report and send; short enough for others not to.
        std::thread::sleep(Duration::from_millis(moments.below(1_000)));
        if moments.below(3) > 0 {
            let address = served.address();
            drop(served);
            served = serve(&books, &address.to_string());
        } else {
            // Every other time it has kept a report first, however busy the machine is; a start takes that file away.
            if moments.below(2) == 0 {
                agent.has_kept_a_report();
            }
            agent.kill();
            recorded.extend(agent.recorded());
            agent.start();
        }
    }
    network.good.store(true, Ordering::Relaxed);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(1_500));
        agent.ends_in_order();
        let left = agent.recorded();
        if left.is_empty() {
            break;
        }
        recorded.extend(left);
        agent.start();
    }
    let folder = agent.machine.file("spool");
    assert_eq!((agent.recorded(), files(&folder, ".spool"), files(&folder, ".jsonl")), (vec![], vec![], vec![]));
    assert!(network.faults.load(Ordering::Relaxed) > 10);
    drop(served);

    // Each record that was on disk at a kill is held as it was.
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    let segments = check::rows(&mut db, "segment").unwrap();
    let mut ingest = ingest(&calendar);
    let mut names = BTreeSet::new();
    for report in recorded {
        let clocks = Clocks { wall_us: now().micros(), ..report.clocks };
        let taken = take(&mut db, &mut ingest, &Report { clocks, ..report.clone() }, now());
        assert!(taken.records.iter().all(|record| record.outcome == Outcome::Known), "{report:?}: {taken:?}");
        names.extend(taken.records.iter().filter_map(|record| Some((report.epoch, record.record?))));
    }
    assert!(names.len() > 50, "{} records only", names.len());
    assert_eq!(check::rows(&mut db, "segment").unwrap(), segments);
    sums_are_whole(&books, began);
}

/// No time is told twice, and what nobody told is unobserved.
fn sums_are_whole(books: &Books, began: Instant) {
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    roll_up::roll_up(&mut db, &calendar, None).unwrap();
    let ended = now();
    let days: BTreeSet<_> = [began, ended].map(|at| calendar.day_of(at).start()).into();
    for day in days {
        let reconciled = reconcile(&mut db, &calendar, calendar.day_of(day), ended).unwrap();
        assert!(
            !reconciled.days.is_empty() && reconciled.days.iter().all(|day| day.difference_us == 0),
            "{reconciled:?}"
        );
        assert!(reconciled.findings.is_empty(), "{:?}", reconciled.findings);
    }
    let usages = usage::of_interval(&mut db, Interval::new(Instant::from_micros(0), Instant::MAX).unwrap()).unwrap();
    let held: i64 = usages.iter().filter(|usage| usage.key.state == State::Held).map(|usage| usage.share_us).sum();
    let whole = 2 * (ended.micros() - began.micros());
    // Of the time in which no start lived long enough to report, nobody can tell.
    assert!(held > whole / 16 && held <= whole, "{held} of {whole}");
}

on_both!(either_is_killed_two_hundred_times_and_nothing_recorded_is_lost_or_double);
