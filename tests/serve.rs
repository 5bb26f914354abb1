//! The service as it is started: tokens, answers to what is wrong, kills at any moment.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use gpuledger_domain::metering::State;
use gpuledger_domain::time::{HOUR_US, Instant, Interval};
use gpuledger_wire::{Report, Segment};
use serde_json::Value;

use crate::crash::Moments;
use crate::support::reports::{SECOND_US, job, report, segment};
use crate::support::{Books, command, on_both, project_file};

pub(crate) struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn serve(books: &Books, listen: &str) -> Served {
    let mut child = command::command(books, "UTC", &["serve", "--no-pages", "--listen", listen])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address =
        line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_else(|| panic!("{line}"));
    Served { child, address: address.parse().unwrap() }
}

pub(crate) fn token(books: &Books, arguments: &[&str]) -> String {
    command::run(books, &[&["token", "create"], arguments].concat()).good().trim().to_owned()
}

/// Sends a body; status and answer, or `None` where the service went away.
fn post(address: SocketAddr, token: &str, headers: &str, body: &[u8]) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "POST /api/v1/reports HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    // A service that refuses a large body may not read it to its end.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    Some((status, serde_json::from_str(body).ok()?))
}

pub(crate) fn now() -> Instant {
    gpuledger::clock::now()
}

/// A report of the last whole hour.
fn last_hour(node: &str) -> Report {
    let (now, hour) = (now(), Instant::from_micros(now().micros() - HOUR_US).hour().start());
    let held = segment(0, Some(0), hour, hour.plus_micros(600 * SECOND_US).unwrap());
    Report { jobs: vec![job("1", "a", hour)], segments: vec![held], ..report(node, 1_000, 1, now) }
}

fn bytes(report: &Report) -> Vec<u8> {
    serde_json::to_vec(report).unwrap()
}

fn each_wrong_report_gets_its_code_and_a_good_one_is_stored(books: Books) {
    let books = books.migrated("UTC");
    let served = serve(&books, "127.0.0.1:0");
    let (good, of_node) = (token(&books, &["--cluster", "c"]), token(&books, &["--cluster", "c", "--node", "n1"]));
    let other = token(&books, &["--cluster", "d"]);
    let ask = |token: &str, headers: &str, body: &[u8]| post(served.address, token, headers, body).unwrap();
    let code = |(status, answer): (u16, Value)| (status, answer["code"].as_str().unwrap_or("none").to_owned());
    let body = bytes(&last_hour("n1"));
    assert_eq!(code(ask("", "", &body)), (401, "bad-token".into()));
    assert_eq!(code(ask(&good.replace("gpul", "gpux"), "", &body)), (401, "bad-token".into()));
    let forged = format!("gpul_{}_{}", &good[5..21], "0".repeat(64));
    let forged = format!("{forged}_{:08x}", crc32fast::hash(forged.as_bytes()));
    assert_eq!(code(ask(&forged, "", &body)), (401, "bad-token".into()));
    assert_eq!(code(ask(&other, "", &body)), (403, "wrong-cluster".into()));
    assert_eq!(code(ask(&of_node, "", &bytes(&last_hour("n2")))), (403, "wrong-node".into()));
    assert_eq!(code(ask(&good, "", b"{}")), (400, "bad-report".into()));
    assert_eq!(code(ask(&good, "", &body[..body.len() / 2])), (400, "truncated".into()));
    assert_eq!(code(ask(&good, "Content-Encoding: br\r\n", &body)), (415, "bad-encoding".into()));
    let zstd = zstd::encode_all(body.as_slice(), 3).unwrap();
    assert_eq!(code(ask(&good, "Content-Encoding: zstd\r\n", &zstd[..zstd.len() - 9])), (400, "truncated".into()));
    let bomb = zstd::encode_all(std::io::repeat(b' ').take(200 << 20), 3).unwrap();
    assert!(bomb.len() < 100_000);
    assert_eq!(code(ask(&good, "Content-Encoding: zstd\r\n", &bomb)), (413, "too-large".into()));
    // A million jobs are some kilobytes of zstd; no more of them are kept than may be.
    let none = Report { jobs: Vec::new(), segments: Vec::new(), ..last_hour("n1") };
    let whole = serde_json::to_string(&none).unwrap();
    let jobs = format!("\"jobs\":[{}],", vec![r#"{"source_id":"","start_us":0}"#; 1_000_000].join(","));
    let crowd = zstd::encode_all(whole.replacen('{', &format!("{{{jobs}"), 1).as_bytes(), 3).unwrap();
    assert!(crowd.len() < 100_000, "{}", crowd.len());
    assert_eq!(code(ask(&good, "Content-Encoding: zstd\r\n", &crowd)), (413, "too-many".into()));
    assert_eq!(code(ask(&good, "", &vec![b' '; 5 << 20])), (413, "too-large".into()));
    let mut sliced = last_hour("n1");
    (sliced.units[0].compute_slices, sliced.units[0].gpu.compute_slices) = (i32::MAX as u32, i32::MAX as u32);
    assert_eq!(code(ask(&good, "", &bytes(&sliced))), (400, "bad-value".into()));
    let newer = Report { protocol: 2, ..last_hour("n1") };
    assert_eq!(code(ask(&good, "", &bytes(&newer))), (400, "bad-protocol".into()));
    let named = Report { node: "n\u{7}".into(), ..last_hour("n1") };
    assert_eq!(code(ask(&good, "", &bytes(&named))), (400, "bad-value".into()));
    let record = |change: &dyn Fn(&mut Segment)| {
        let mut report = last_hour("n1");
        report.segments[0].number = 9;
        change(&mut report.segments[0]);
        let (status, answer) = ask(&good, "", &bytes(&report));
        assert_eq!(status, 200, "{answer}");
        answer["records"][0]["code"].as_str().unwrap().to_owned()
    };
    let moved = |segment: &mut Segment, by: i64| {
        (segment.start_us, segment.end_us) = (segment.start_us + by, segment.end_us + by)
    };
    assert_eq!(record(&|segment| moved(segment, 3 * HOUR_US)), "future");
    assert_eq!(record(&|segment| moved(segment, -500 * 24 * HOUR_US)), "too-old");
    assert_eq!(record(&|segment| moved(segment, 3_300 * SECOND_US)), "crosses-hour");
    assert_eq!(record(&|segment| segment.unit = 1), "no-unit");
    assert_eq!(record(&|segment| segment.job = None), "no-job");
    assert_eq!(record(&|segment| segment.share_us += 1), "bad-totals");
    let mut clock = last_hour("n1");
    clock.clocks.wall_us -= 600 * SECOND_US;
    let (status, answer) = ask(&good, "", &bytes(&clock));
    assert_eq!((status, &answer["records"][0]["code"]), (200, &Value::from("clock-off")));
    // Nothing of all that was stored; this is, packed or not, and again.
    let gzip = {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(&body).unwrap();
        packer.finish().unwrap()
    };
    let outcome =
        |(status, answer): (u16, Value)| (status, answer["records"][0]["outcome"].as_str().unwrap().to_owned());
    assert_eq!(outcome(ask(&of_node, "Content-Encoding: zstd\r\n", &zstd)), (200, "accepted".into()));
    assert_eq!(outcome(ask(&good, "Content-Encoding: gzip\r\n", &gzip)), (200, "known".into()));
    let (_, answer) = ask(&good, "", &body);
    assert_eq!(answer["settings"]["report_interval_us"], 60 * SECOND_US);
    // A revoked token is void in a moment, and the others are not.
    let id = of_node.split('_').nth(1).unwrap();
    command::run(&books, &["token", "revoke", id]).good();
    let begun = std::time::Instant::now();
    while post(served.address, &of_node, "", &body).unwrap().0 == 200 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(ask(&good, "", &body).0, 200);
    let listed = command::run(&books, &["token", "list"]).good();
    assert!(listed.contains("revoked") && listed.contains("any node of cluster d"), "{listed}");
    assert!(!listed.contains(good.split('_').nth(2).unwrap()), "the list shows a secret");
}

fn the_example_in_shell_pushes_a_report(books: Books) {
    let books = books.migrated("UTC");
    let served = serve(&books, "127.0.0.1:0");
    let token = token(&books, &["--cluster", "lab", "--note", "an example"]);
    let ran = Command::new(project_file("docs/examples/report/push.sh"))
        .args(["lab", "n1"])
        .env("GPULEDGER_URL", format!("http://{}", served.address))
        .env("GPULEDGER_TOKEN", &token)
        .output()
        .unwrap();
    let ran = command::ran(ran);
    let answer: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{} {}", ran.out, ran.err));
    assert_eq!(answer["records"][0]["outcome"], "accepted", "{answer}");
}

/// What a client of the kill test sends as its report of this number: five segments of twelve seconds.
fn numbered(node: &str, number: i64, from: Instant) -> Report {
    let start = from.plus_micros(number * 60 * SECOND_US).unwrap();
    let segments = (0..5).map(|part| {
        let start = start.plus_micros(part * 12 * SECOND_US).unwrap();
        let place = u32::try_from((number % 60) * 5 + part).unwrap();
        segment(place, Some(0), start, start.plus_micros(12 * SECOND_US).unwrap())
    });
    let segments: Vec<Segment> = segments.collect();
    Report {
        jobs: vec![job(node, "a", from)],
        segments,
        ..report(node, 1_000, u64::try_from(number).unwrap() + 1, now())
    }
}

fn killed_two_hundred_times_under_load_nothing_is_missing_and_nothing_double(books: Books) {
    let books = books.migrated("UTC");
    let token = token(&books, &["--cluster", "c"]);
    let served = serve(&books, "127.0.0.1:0");
    let (address, from) = (served.address, Instant::from_micros(now().micros() - 20 * 24 * HOUR_US).hour().start());
    let (over, acknowledged) = (AtomicBool::new(false), AtomicI64::new(0));
    let mut moments = Moments::from_environment();
    let sent: Vec<i64> = std::thread::scope(|scope| {
        let clients: Vec<_> = ["n1", "n2", "n3"]
            .map(|node| {
                let (over, token, acknowledged) = (&over, &token, &acknowledged);
                scope.spawn(move || {
                    let mut number = 0;
                    while !over.load(Ordering::Relaxed) && number < 20_000 {
                        let body = bytes(&numbered(node, number, from));
                        match post(address, token, "", &body) {
                            Some((200, answer)) => {
                                let records = answer["records"].as_array().unwrap();
                                assert!(
                                    records.iter().all(|r| r["outcome"] == "accepted" || r["outcome"] == "known"),
                                    "{answer}"
                                );
                                number += 1;
                                acknowledged.fetch_add(1, Ordering::Relaxed);
                            }
                            Some((500 | 503, _)) | None => std::thread::sleep(Duration::from_millis(3)),
                            Some((status, answer)) => panic!("{status} {answer}"),
                        }
                    }
                    number
                })
            })
            .into_iter()
            .collect();
        let mut served = served;
        for kill in 0..200 {
            // Every other time some reports come through first, however busy the machine is; else it may die while it starts.
            let before = acknowledged.load(Ordering::Relaxed);
            while kill % 2 == 0
                && acknowledged.load(Ordering::Relaxed) < before + 3
                && clients.iter().any(|client| !client.is_finished())
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(moments.below(120)));
            drop(served);
            served = serve(&books, &address.to_string());
        }
        std::thread::sleep(Duration::from_millis(100));
        over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(sent.iter().sum::<i64>() > 200, "{sent:?} reports only");
    let (mut db, calendar) = (books.db(), gpuledger_domain::calendar::BillingCalendar::new("UTC").unwrap());
    gpuledger::workflows::roll_up::roll_up(&mut db, &calendar, None).unwrap();
    let whole = Interval::new(Instant::from_micros(0), now()).unwrap();
    let usages = gpuledger_db::usage::of_interval(&mut db, whole).unwrap();
    let held: i64 = usages.iter().filter(|u| u.key.state == State::Held).map(|u| u.share_us).sum();
    // Clients end with an answer, so that all that is stored was acknowledged.
    assert_eq!(held, sent.iter().sum::<i64>() * 60 * SECOND_US);
    assert_eq!(gpuledger_db::check::rows(&mut db, "segment").unwrap(), sent.iter().sum::<i64>() * 5);
}

/// Three services on one PostgreSQL, each report sent to all of them at once, one of them killed on the way.
#[test]
fn three_replicas_store_and_sum_each_segment_once() {
    let books = Books::postgres().migrated("UTC");
    let token = token(&books, &["--cluster", "c"]);
    let mut replicas: Vec<Served> = (0..3).map(|_| serve(&books, "127.0.0.1:0")).collect();
    let addresses: Vec<SocketAddr> = replicas.iter().map(|served| served.address).collect();
    let from = Instant::from_micros(now().micros() - 20 * 24 * HOUR_US).hour().start();
    let count = 40;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|client| {
                let (addresses, token) = (&addresses, &token);
                scope.spawn(move || {
                    for number in 0..count {
                        // All clients tell of the same node at the same time, each by another replica.
                        let body = bytes(&numbered("n1", number, from));
                        for again in 0.. {
                            let address = addresses[(client + again) % addresses.len()];
                            match post(address, token, "", &body) {
                                Some((200, answer)) => {
                                    let records = answer["records"].as_array().unwrap();
                                    assert!(
                                        records.iter().all(|r| r["outcome"] == "accepted" || r["outcome"] == "known"),
                                        "{answer}"
                                    );
                                    break;
                                }
                                Some((500 | 503, _)) | None => assert!(again < 1_000),
                                Some((status, answer)) => panic!("{status} {answer}"),
                            }
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(400));
        drop(replicas.remove(0));
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    // The two that are left sum what is marked; so does this.
    let (mut db, calendar) = (books.db(), gpuledger_domain::calendar::BillingCalendar::new("UTC").unwrap());
    gpuledger::workflows::roll_up::roll_up(&mut db, &calendar, None).unwrap();
    let begun = std::time::Instant::now();
    while !gpuledger_db::usage::marks(&mut db, None).unwrap().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(50));
    }
    let whole = Interval::new(Instant::from_micros(0), now()).unwrap();
    let usages = gpuledger_db::usage::of_interval(&mut db, whole).unwrap();
    let held: i64 = usages.iter().filter(|u| u.key.state == State::Held).map(|u| u.share_us).sum();
    assert_eq!(held, count * 60 * SECOND_US);
    assert_eq!(gpuledger_db::check::rows(&mut db, "segment").unwrap(), count * 5);
    assert_eq!(gpuledger_db::check::orphans(&mut db).unwrap(), []);
}

/// The description for programs names every code that the types have, and nothing else.
#[test]
fn the_description_for_programs_says_what_the_types_say() {
    let described: Value = serde_json::from_str(gpuledger::web::OPENAPI).unwrap();
    let words = |schema: &str, field: &str| -> Vec<String> {
        let words = &described["components"]["schemas"][schema]["properties"][field]["enum"];
        words.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    // Each word is read as a code; that no code is missing, serde says: its error lists them all.
    fn known<T: serde::de::DeserializeOwned>(described: &[String]) {
        let message = serde_json::from_value::<T>(Value::from("?")).err().unwrap().to_string();
        let listed = message.split("expected one of ").nth(1).unwrap();
        let mut listed: Vec<String> = listed.split(", ").map(|word| word.trim_matches('`').to_owned()).collect();
        let mut described = described.to_vec();
        listed.sort();
        described.sort();
        assert_eq!(listed, described);
    }
    known::<gpuledger_wire::RefusalCode>(&words("Refusal", "code"));
    known::<gpuledger_wire::RecordCode>(&words("RecordAnswer", "code"));
    known::<gpuledger_wire::Outcome>(&words("RecordAnswer", "outcome"));
    known::<gpuledger_wire::State>(&words("Segment", "state"));
    known::<gpuledger_wire::UnitKind>(&words("Unit", "kind"));
    // Every field of the golden report is described.
    fn compare(described: &Value, schema: &Value, example: &Value) {
        let schema = match schema["$ref"].as_str() {
            Some(name) => &described["components"]["schemas"][name.rsplit('/').next().unwrap()],
            None => schema,
        };
        match example {
            Value::Array(examples) => examples.iter().for_each(|example| compare(described, &schema["items"], example)),
            Value::Object(fields) if schema.get("additionalProperties").is_none() => {
                for (name, example) in fields {
                    let field = schema["properties"].get(name).unwrap_or_else(|| panic!("{name} is not described"));
                    compare(described, field, example);
                }
            }
            _ => assert!(schema["type"].is_string(), "{schema}"),
        }
    }
    let golden = |name: &str| -> Value {
        let text = std::fs::read_to_string(project_file("collectors/wire/golden").join(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    compare(&described, &described["components"]["schemas"]["Report"], &golden("report-1.json"));
    compare(&described, &described["components"]["schemas"]["Answer"], &golden("answer-1.json"));
    // Every address, with its methods.
    let source = std::fs::read_to_string(project_file("src/web/service.rs")).unwrap();
    let routed: Vec<&str> = source.split("resource(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let mut paths: Vec<&str> = described["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut sorted = routed.clone();
    sorted.sort_unstable();
    paths.sort_unstable();
    assert_eq!(sorted, paths);
}

on_both!(
    each_wrong_report_gets_its_code_and_a_good_one_is_stored,
    the_example_in_shell_pushes_a_report,
    killed_two_hundred_times_under_load_nothing_is_missing_and_nothing_double,
);
