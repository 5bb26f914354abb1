//! Pages as a browser gets them, from the server that people start.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use gpuledger::config::Config;
use gpuledger::web;
use gpuledger_db::Database;

use crate::support::Books;

fn served(books: &Books) -> SocketAddr {
    let mut config = Config::load(None, |_| None).unwrap();
    config.database = Database::parse(&books.url).unwrap();
    config.notice = Some(gpuledger::demo::NOTICE.to_owned());
    let listener = web::listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || web::serve(listener, config, web::Door::open()));
    address
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{}\r\nConnection: close\r\n\r\n", request.replace("HOST", &address.to_string())).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: HOST"))
}

#[test]
fn the_statements_are_listed_and_shown_with_their_figures() {
    let books = crate::frozen::closed_april(Books::sqlite());
    let address = served(&books);
    let list = get(address, "/statements");
    assert!(
        list.starts_with("HTTP/1.1 200") && list.contains("April 2025") && list.contains("/statements/ST-2025-04-0001"),
        "{list}"
    );
    assert!(!list.contains("May 2025"), "an open month has no statements");
    let page = get(address, "/statements/ST-2025-04-0001");
    // 53 hours at 2 credits.
    assert!(page.contains("106.00") && page.contains("53.00") && page.contains("Not real books."), "{page}");
    let csv = get(address, "/statements/ST-2025-04-0001.csv");
    assert!(
        csv.contains("text/csv")
            && csv.contains("attachment; filename=\"ST-2025-04-0001.csv\"")
            && csv.contains("106.00,106.000000"),
        "{csv}"
    );
    assert!(get(address, "/").contains("location: /statements"));
}

#[test]
fn every_answer_carries_the_policy_and_nothing_is_inline() {
    let books = crate::frozen::closed_april(Books::sqlite());
    let address = served(&books);
    for path in [
        "/statements",
        "/statements/ST-2025-04-0001",
        "/statements/nothing",
        "/static/statement.css",
        "/none",
        "/static/../Cargo.toml",
    ] {
        let answer = get(address, path);
        for header in [
            "content-security-policy: default-src 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: same-origin",
            "cache-control: no-store",
        ] {
            assert!(answer.contains(header), "{path} lacks {header}");
        }
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        for inline in ["style=\"", "<style", "<script", " onclick", " onload"] {
            assert!(!body.contains(inline), "{path} holds {inline}");
        }
    }
}

#[test]
fn what_is_not_there_and_who_may_not_ask() {
    let books = crate::frozen::closed_april(Books::sqlite());
    let address = served(&books);
    for path in [
        "/statements/ST-2025-04-0009",
        "/statements/x%27%20OR%201=1",
        "/static/Cargo.toml",
        "/static/..%2fCargo.toml",
        "/etc/passwd",
    ] {
        assert!(get(address, path).starts_with("HTTP/1.1 404"), "{path}");
    }
    assert!(ask(address, "GET /statements HTTP/1.1\r\nHost: attacker.example").starts_with("HTTP/1.1 421"));
    let forwarded = "GET /statements HTTP/1.1\r\nHost: attacker.example\r\nX-Forwarded-Host: localhost\r\nForwarded: host=localhost";
    assert!(ask(address, forwarded).starts_with("HTTP/1.1 421"));
    assert!(ask(address, "POST /statements HTTP/1.1\r\nHost: HOST\r\nContent-Length: 0").starts_with("HTTP/1.1 4"));
    assert!(address.ip().is_loopback());
}

#[test]
fn a_folder_of_pages_holds_all_that_it_refers_to() {
    let books = crate::frozen::closed_april(Books::sqlite());
    let ran =
        crate::support::command::run(&books, &["statement", "render", "--period", "2025-04", "--out", "out"]).good();
    assert!(ran.starts_with("2 statements of 2025-04 in out"), "{ran}");
    let mut names: Vec<String> = std::fs::read_dir(books.path("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "ST-2025-04-0001.csv",
            "ST-2025-04-0001.html",
            "ST-2025-04-0002.csv",
            "ST-2025-04-0002.html",
            "assets",
            "index.html"
        ]
    );
    for name in names.iter().filter(|name| name.ends_with(".html")) {
        let page = std::fs::read_to_string(books.path("out").join(name)).unwrap();
        for target in page
            .split("href=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap())
            .filter(|target| !target.starts_with('#'))
        {
            assert!(books.path("out").join(target).exists(), "{name} refers to {target}");
        }
    }
    let open = crate::support::command::run(&books, &["statement", "render", "--period", "2025-05", "--out", "out"]);
    assert!(open.code == 1 && open.err.contains("is not closed"), "{}", open.err);
}

#[test]
fn names_are_inert_on_pages() {
    let books = Books::sqlite().migrated("UTC");
    let calendar = gpuledger_domain::calendar::BillingCalendar::new("UTC").unwrap();
    let mut db = books.db();
    use crate::support::jobs::{apply_text, import, now};
    use gpuledger_db::catalogue::CatalogueKind;
    apply_text(
        &mut db,
        &calendar,
        CatalogueKind::Teams,
        "[[team]]\ncode = \"a\"\nname = 'A\"><script>alert(1)</script>'\n",
    )
    .unwrap();
    apply_text(&mut db, &calendar, CatalogueKind::Prices, "[[price]]\nsku = \"A100\"\nrate = \"2\"\n").unwrap();
    apply_text(
        &mut db,
        &calendar,
        CatalogueKind::Rules,
        "[[rule]]\nname = \"r\"\nteam = \"a\"\nexperiment = 'x</td><img src=x>'\n",
    )
    .unwrap();
    let mapping = "[columns]\nid = \"id\"\nstart = \"start\"\nend = \"end\"\n[constants]\ngpus = \"1\"\nsku = \"A100\"\ncluster = \"c\"\npool = \"p\"\n";
    import(&mut db, &calendar, mapping, b"id,start,end\n1,2025-04-10T00:00:00Z,2025-04-12T05:00:00Z\n");
    gpuledger::workflows::close::close(
        &mut db,
        &calendar,
        gpuledger_domain::calendar::Month::parse("2025-04").unwrap(),
        "test",
        now,
    )
    .unwrap();
    let page = get(served(&books), "/statements/ST-2025-04-0001");
    assert!(page.contains("alert(1)") && !page.contains("<script") && !page.contains("<img"), "{page}");
}
