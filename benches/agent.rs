//! What the agent costs the node that it watches: 8 GPUs of 7 slices each with a process on every slice, looked at once a second
//! and reported once a minute, against the fake driver, for ten minutes; beside Debian's `prometheus-node-exporter`, where that is
//! installed, asked once a second. Processor time is the kernel's account of the process, the fake driver's own work included.
//!
//! `GPULEDGER_BENCH_SECONDS=60` makes it shorter; `GPULEDGER_BENCH_SCRAPE=1` asks the agent for its figures once a second, too.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpuledger_wire::{Answer, Outcome, PROTOCOL, RecordAnswer, RecordName, Report, Settings};

const GPUS: u32 = 8;
const SLICES: u32 = 7;
const HOUR_US: i64 = 3_600_000_000;
/// What is held until everything runs evenly, the first report included, is not measured.
const WARM_UP: Duration = Duration::from_secs(75);

fn main() {
    let seconds = std::env::var("GPULEDGER_BENCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let scrapes = std::env::var_os("GPULEDGER_BENCH_SCRAPE").is_some();
    let folder = tempfile::tempdir().unwrap();
    let service = serve();
    let port = free_port();
    machine(
        folder.path(),
        &format!(
            "service = \"{service}\"\ntoken_file = \"{}\"\nspool = \"{}\"\nmetrics = \"127.0.0.1:{port}\"\n",
            folder.path().join("token").display(),
            folder.path().join("spool").display()
        ),
    );
    let mut watched = vec![Watched::new("gpuledger-agent", agent(folder.path()), scrapes.then_some(port))];
    let exporter_port = free_port();
    let exporter = Command::new("prometheus-node-exporter")
        .arg(format!("--web.listen-address=127.0.0.1:{exporter_port}"))
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    match exporter {
        Ok(child) => watched.push(Watched::new("prometheus-node-exporter", child, Some(exporter_port))),
        Err(error) => println!("prometheus-node-exporter is not measured: {error}"),
    }
    let began = Instant::now();
    let mut second = 0;
    while began.elapsed() < WARM_UP + Duration::from_secs(seconds) {
        if began.elapsed() >= WARM_UP {
            watched.iter_mut().for_each(Watched::measure);
        }
        watched.iter().filter_map(|process| process.scraped_at).for_each(scrape);
        second += 1;
        std::thread::sleep((began + Duration::from_secs(second)).saturating_duration_since(Instant::now()));
    }
    for mut process in watched {
        process.measure();
        process.tell();
    }
}

/// A process that is measured.
struct Watched {
    name: &'static str,
    child: Child,
    scraped_at: Option<u16>,
    first: Option<(Instant, u64)>,
    last: (Instant, u64),
    resident_kib: Vec<u64>,
}

impl Watched {
    fn new(name: &'static str, child: Child, scraped_at: Option<u16>) -> Watched {
        let last = (Instant::now(), 0);
        Watched { name, child, scraped_at, first: None, last, resident_kib: Vec::new() }
    }

    fn measure(&mut self) {
        let root = format!("/proc/{}", self.child.id());
        // Nanoseconds on a processor, by thread.
        let threads = fs::read_dir(format!("{root}/task")).unwrap();
        let of_thread = |thread: std::io::Result<fs::DirEntry>| -> u64 {
            let text = fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
        };
        self.last = (Instant::now(), threads.map(of_thread).sum());
        self.first.get_or_insert(self.last);
        let status = fs::read_to_string(format!("{root}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        self.resident_kib.push(line.split_whitespace().nth(1).unwrap().parse().unwrap());
    }

    fn tell(&mut self) {
        let (from, before) = self.first.unwrap();
        let (until, after) = self.last;
        // Parts of a hundred thousand of a processor: 200 are 0.2 %.
        let parts = u128::from(after - before) * 100_000 / until.duration_since(from).as_nanos().max(1);
        println!(
            "{}: {}.{:03} % of one processor over {} s; resident {} KiB at first, {} at the end, {} at most",
            self.name,
            parts / 1_000,
            parts % 1_000,
            until.duration_since(from).as_secs(),
            self.resident_kib[0],
            self.resident_kib.last().unwrap(),
            self.resident_kib.iter().max().unwrap()
        );
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn agent(folder: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuledger-agent"));
    command.arg("--config").arg(folder.join("agent.toml")).stderr(Stdio::inherit());
    command.spawn().unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn scrape(port: u16) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return };
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
}

/// A machine of files: the driver's scenario, processes with environments of a usual size, and the agent's settings.
fn machine(folder: &Path, more: &str) {
    let file = |name: &str| folder.join(name);
    fs::create_dir_all(file("proc/1/ns")).unwrap();
    symlink("pid:[4026531836]", file("proc/1/ns/pid")).unwrap();
    fs::create_dir_all(file("proc/sys/kernel/random")).unwrap();
    fs::write(file("proc/sys/kernel/random/boot_id"), "b-1\n").unwrap();
    fs::write(file("proc/sys/kernel/pid_max"), "4194304\n").unwrap();
    fs::write(file("token"), "gpul_bench\n").unwrap();
    let mut scenario = String::from("driver = \"590.48.01\"\n");
    for gpu in 0..GPUS {
        write!(scenario, "[[device]]\nname = \"NVIDIA H100 80GB HBM3\"\nuuid = \"GPU-{gpu}\"\npci = \"00000000:0{gpu}:00.0\"\nmemory_mib = 81559\nmig_devices_max = 7\n[[device.profile]]\nnumber = 0\nid = 19\nslices = 1\nmost = 7\nmultiprocessors = 16\nmemory_mib = 9984\nplacements = [[0, 1], [1, 1], [2, 1], [3, 1], [4, 1], [5, 1], [6, 1]]\n[[device.profile]]\nnumber = 4\nid = 0\nslices = 7\nmost = 1\nmultiprocessors = 132\nmemory_mib = 81152\nplacements = [[0, 8]]\n[[device.state]]\nat = 0\nmig = true\nmemory_used_mib = 40000\npower_mw = 500000\n").unwrap();
        for slice in 0..SLICES {
            let pid = 1_000 + gpu * SLICES + slice;
            write!(scenario, "[[device.state.instance]]\nuuid = \"MIG-{gpu}-{slice}\"\ngi = {slice}\nci = 0\nprofile = \"1g.10gb\"\ngi_slices = 1\nci_slices = 1\nplacement = [{slice}, 1]\nmultiprocessors = 16\nmemory_mib = 9984\nused_mib = 5000\nactivity = {{ sm = 600000, occupancy = 300000, tensor = 200000, memory = 400000 }}\n[[device.state.process]]\npid = {pid}\ngi = {slice}\nci = 0\nmemory_mib = 4900\n").unwrap();
            process(&file(&format!("proc/{pid}")), pid);
        }
    }
    let library = file("node.so");
    fs::copy(std::env::current_exe().unwrap().with_file_name("libnvidia_ml.so"), &library).unwrap();
    fs::write(file("node.toml"), scenario).unwrap();
    let settings = format!(
        "cluster = \"c\"\nnode = \"gpu01\"\nproc = \"{}\"\nnvml_library = \"{}\"\nsample_seconds = 1\nreport_seconds = 60\n{more}",
        file("proc").display(),
        library.display()
    );
    fs::write(file("agent.toml"), settings).unwrap();
}

fn process(folder: &Path, pid: u32) {
    fs::create_dir_all(folder).unwrap();
    let stat = format!(
        "{pid} (python) R 1 {pid} {pid} 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 100 123456789 4321 18446744073709551615\n"
    );
    fs::write(folder.join("stat"), stat).unwrap();
    fs::write(folder.join("cgroup"), format!("0::/system.slice/slurmstepd.scope/job_{pid}/step_0/user/task_0\n"))
        .unwrap();
    let mut environ = format!("SLURM_JOB_ID={pid}\0SLURM_JOB_ACCOUNT=vision\0SLURM_JOB_PARTITION=gpu\0");
    (0..60)
        .for_each(|number| write!(environ, "A_VARIABLE_{number}=/some/path/of/a/usual/length/{number}/bin\0").unwrap());
    fs::write(folder.join("environ"), environ).unwrap();
    fs::write(folder.join("status"), "Name:\tpython\nUid:\t1500\t1500\t1500\t1500\n").unwrap();
}

/// A service that takes everything. Where it is.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // The client keeps its connection, or opens another.
            while let Some(report) = read(&mut stream) {
                let body = serde_json::to_vec(&answer(&report)).unwrap();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                if stream.write_all(&[head.as_bytes(), body.as_slice()].concat()).is_err() {
                    break;
                }
            }
        }
    });
    format!("http://{address}")
}

fn read(stream: &mut TcpStream) -> Option<Report> {
    let (mut bytes, mut part) = (Vec::new(), [0; 65_536]);
    loop {
        let length = stream.read(&mut part).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&part[..length]);
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        let Ok(httparse::Status::Complete(start)) = request.parse(&bytes) else { continue };
        let header = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length")).unwrap();
        let whole = start + std::str::from_utf8(header.value).unwrap().parse::<usize>().unwrap();
        if bytes.len() >= whole {
            return serde_json::from_slice(&zstd::decode_all(&bytes[start..whole]).unwrap()).ok();
        }
    }
}

fn answer(report: &Report) -> Answer {
    let taken = |start_us: i64, number: u32| RecordAnswer {
        record: Some(RecordName { hour_us: start_us - start_us.rem_euclid(HOUR_US), number }),
        outcome: Outcome::Accepted,
        code: None,
        message: String::new(),
    };
    Answer {
        protocol: PROTOCOL,
        records: report.segments.iter().map(|segment| taken(segment.start_us, segment.number)).collect(),
        head: None,
        settings: Settings {
            version: "1".into(),
            cuts_us: Vec::new(),
            sample_interval_us: 1_000_000,
            report_interval_us: 60_000_000,
        },
    }
}
