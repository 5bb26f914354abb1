//! How fast the service stores reports that come through HTTP, and what memory it takes: 8 connections that each wait
//! for their answers, reports of 60 finished segments of 8 GPUs with a head of 8, client and service on the same cores. Run by
//! `./test bench`; the numbers of nodes and of reports of each can be set.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]
#![allow(clippy::float_arithmetic, clippy::cast_precision_loss)]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const CONNECTIONS: usize = 8;
const SEGMENTS: usize = 60;
const GPUS: usize = 8;

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The report of this number of a node: the next 60 seconds of each of its GPUs, in pieces of eight seconds.
fn body(node: usize, report: usize, from_us: i64, now_us: i64) -> String {
    let minute_us = from_us + i64::try_from(report).unwrap() * 60_000_000;
    let mut text = format!(
        "{{\"protocol\":1,\"cluster\":\"bench\",\"node\":\"n{node}\",\"boot_id\":\"b\",\"epoch\":{{\"start_us\":{from_us},\"random\":1}},\
         \"sequence\":{report},\"clocks\":{{\"wall_us\":{now_us},\"boot_us\":0}},\"units\":["
    );
    for gpu in 0..GPUS {
        let comma = if gpu > 0 { "," } else { "" };
        write!(
            text,
            "{comma}{{\"gpu\":{{\"uuid\":\"GPU-{node}-{gpu}\",\"model\":\"NVIDIA H100 80GB HBM3\",\"compute_slices\":7,\"memory_slices\":8}},\
             \"kind\":\"full\",\"compute_slices\":7,\"memory_slices\":8,\"birth_us\":{from_us}}}"
        )
        .unwrap();
    }
    text += "],\"jobs\":[";
    for gpu in 0..GPUS {
        let comma = if gpu > 0 { "," } else { "" };
        let user = node % 500;
        write!(
            text,
            "{comma}{{\"source_id\":\"{node}-{gpu}\",\"start_us\":{from_us},\"facts\":{{\"user\":\"u{user}\",\"account\":\"a{gpu}\"}}}}"
        )
        .unwrap();
    }
    text += "],\"segments\":[";
    for place in 0..SEGMENTS {
        let comma = if place > 0 { "," } else { "" };
        let (gpu, piece) = (place % GPUS, place / GPUS);
        let start = minute_us + i64::try_from(piece).unwrap() * 7_500_000;
        let number = (report % 60) * SEGMENTS + place;
        write!(
            text,
            "{comma}{{\"number\":{number},\"unit\":{gpu},\"job\":{gpu},\"state\":\"held\",\"start_us\":{start},\"end_us\":{},\"share_us\":7500000,\
             \"active_us\":7000000,\"telemetry\":{{\"utilisation\":{{\"total\":6000000,\"measured_us\":7500000}}}}}}",
            start + 7_500_000
        )
        .unwrap();
    }
    text += "],\"head\":[";
    for gpu in 0..GPUS {
        let comma = if gpu > 0 { "," } else { "" };
        let start = minute_us + 60_000_000;
        let (hour_us, number) = (3_600_000_000, if report % 60 == 59 { 0 } else { (report % 60 + 1) * SEGMENTS } + gpu);
        assert!(start / hour_us == (start + 999_999) / hour_us);
        write!(
            text,
            "{comma}{{\"number\":{number},\"unit\":{gpu},\"job\":{gpu},\"state\":\"held\",\"start_us\":{start},\"end_us\":{},\"share_us\":1000000}}",
            start + 1_000_000
        )
        .unwrap();
    }
    text + "]}"
}

fn request(address: SocketAddr, token: &str, body: &str) -> Vec<u8> {
    let head = format!(
        "POST /api/v1/reports HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// Sends a request over a connection that stays open, and reads the answer.
fn send(stream: &mut BufReader<TcpStream>, request: &[u8]) {
    stream.get_mut().write_all(request).unwrap();
    let (mut line, mut length, mut status) = (String::new(), 0usize, String::new());
    loop {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the service closed the connection");
        if status.is_empty() {
            line.trim().clone_into(&mut status);
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).unwrap();
    assert!(status.contains(" 200 "), "{status} {}", String::from_utf8_lossy(&answer));
    let accepted = answer.windows(10).filter(|word| word == b"\"accepted\"").count();
    // The segments, and the head.
    assert_eq!(accepted, SEGMENTS + 1, "{}", String::from_utf8_lossy(&answer));
}

fn program(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuledger"));
    command.args(arguments).env("GPULEDGER_DATABASE_URL", url).env("GPULEDGER_BILLING_ZONE", "UTC");
    command
}

fn peak_mib(child: &Child) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().split(' ').next().unwrap().parse::<f64>().unwrap() / 1024.0
}

fn written_bytes(child: &Child) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap();
    io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap().parse().unwrap()
}

fn measure(name: &str, url: &str, nodes: usize, reports: usize) {
    assert!(program(url, &["migrate"]).stdout(Stdio::null()).status().unwrap().success());
    let token = program(url, &["token", "create", "--cluster", "bench"]).stderr(Stdio::null()).output().unwrap();
    let token = String::from_utf8(token.stdout).unwrap().trim().to_owned();
    let mut child =
        program(url, &["serve", "--no-pages", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address: SocketAddr = line.split("http://").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
    let now_us = gpuledger::clock::now().micros();
    let from_us = (now_us / 3_600_000_000 - 48) * 3_600_000_000;
    let begun = Instant::now();
    let waited: Vec<f64> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|client| {
                let token = &token;
                scope.spawn(move || {
                    let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
                    stream.get_mut().set_nodelay(true).unwrap();
                    let mut worst = 0.0f64;
                    for report in 0..reports {
                        for node in (client..nodes).step_by(CONNECTIONS) {
                            let request = request(address, token, &body(node, report, from_us, now_us));
                            let asked = Instant::now();
                            send(&mut stream, &request);
                            worst = worst.max(asked.elapsed().as_secs_f64());
                        }
                    }
                    worst
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let stored = nodes * reports * SEGMENTS;
    let (mib, written) = (peak_mib(&child), written_bytes(&child));
    println!(
        "{name}, {nodes} nodes, {reports} reports of each: {:.0} segments/s, {:.0} reports/s; longest answer {:.0} ms; the service's peak {mib:.0} MiB; \
         {:.0} bytes written a segment",
        stored as f64 / seconds,
        (nodes * reports) as f64 / seconds,
        waited.into_iter().fold(0.0, f64::max) * 1_000.0,
        written as f64 / stored as f64
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

fn main() {
    let (nodes, reports) = (number("GPULEDGER_BENCH_NODES", 1_000), number("GPULEDGER_BENCH_REPORTS", 20));
    let folder = tempfile::tempdir().unwrap();
    measure("SQLite", &format!("sqlite://{}", folder.path().join("books.db").display()), nodes, reports);
    match std::env::var("GPULEDGER_TEST_POSTGRES_URL") {
        Err(_) => println!("PostgreSQL: not measured; GPULEDGER_TEST_POSTGRES_URL names no server"),
        Ok(server) => {
            let mut db = gpuledger_db::Database::parse(&server).unwrap().create().unwrap();
            db.execute("DROP SCHEMA IF EXISTS bench_ingest CASCADE; CREATE SCHEMA bench_ingest").unwrap();
            let join = if server.contains('?') { "&" } else { "?" };
            measure("PostgreSQL", &format!("{server}{join}options=-csearch_path%3Dbench_ingest"), nodes, reports);
            db.execute("DROP SCHEMA bench_ingest CASCADE").unwrap();
        }
    }
}
