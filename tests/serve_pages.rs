//! What the service shows and to whom, and reports that come encrypted.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::{Books, command};

struct Served {
    child: Child,
    lines: BufReader<ChildStdout>,
    reports: SocketAddr,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    fn start(books: &Books, arguments: &[&str]) -> Served {
        let all = [&["serve", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut child =
            command::command(books, "UTC", &all).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let reports = address.parse().unwrap_or_else(|_| panic!("{line}"));
        Served { child, lines, reports }
    }

    /// The address and path of the link that is printed next.
    fn link(&mut self) -> (SocketAddr, String) {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let (_, link) = line.trim().split_once("http://").unwrap_or_else(|| panic!("{line}"));
        let (address, path) = link.split_once('/').unwrap();
        (address.parse().unwrap(), format!("/{path}"))
    }
}

fn get(address: SocketAddr, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let host = if headers.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
    write!(stream, "GET {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn pages_of_the_service_are_opened_by_a_link_for_one_browser() {
    let books = crate::frozen::closed_april(Books::sqlite());
    let mut served = Served::start(&books, &["--pages", "0"]);
    let (pages, link) = served.link();
    assert!(pages.ip().is_loopback());
    for path in ["/", "/statements", "/statements/ST-2025-04-0001", "/statements/ST-2025-04-0001.csv", "/open/wrong"] {
        let refused = get(pages, path, "");
        assert!(refused.starts_with("HTTP/1.1 401") && !refused.contains("106.00"), "{path}: {refused}");
    }
    let entered = get(pages, &link, "");
    assert!(entered.starts_with("HTTP/1.1 303") && entered.contains("location: /statements"), "{entered}");
    let cookie = entered.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && cookie.contains("Path=/"), "{cookie}");
    let session = cookie.split(';').next().unwrap();
    let shown = get(pages, "/statements/ST-2025-04-0001", &format!("Cookie: {session}\r\n"));
    assert!(shown.starts_with("HTTP/1.1 200") && shown.contains("106.00"), "{shown}");
    assert!(shown.contains("content-security-policy: default-src 'none'"), "{shown}");
    // Neither the link again, nor another session, nor the page under another name.
    assert!(get(pages, &link, "").starts_with("HTTP/1.1 401"));
    assert!(get(pages, "/statements", "Cookie: gpuledger_session=0\r\n").starts_with("HTTP/1.1 401"));
    let elsewhere = get(pages, "/statements", &format!("Host: evil.example\r\nCookie: {session}\r\n"));
    assert!(elsewhere.starts_with("HTTP/1.1 421"), "{elsewhere}");
    // The next browser has a link of its own.
    let (_, next) = served.link();
    assert!(next != link && get(pages, &next, "").starts_with("HTTP/1.1 303"));
    assert!(get(pages, "/statements", &format!("Cookie: {session}\r\n")).starts_with("HTTP/1.1 200"));
    // Where reports are taken there are no pages.
    assert!(get(served.reports, "/statements", &format!("Cookie: {session}\r\n")).starts_with("HTTP/1.1 404"));
}

#[test]
fn reports_come_encrypted_where_there_is_a_certificate() {
    let books = crate::frozen::closed_april(Books::sqlite());
    let made = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (books.path(&format!("{name}.pem")), books.path(&format!("{name}.key")));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        (certificate.display().to_string(), key.display().to_string())
    };
    let (certificate, key) = made("own");
    let served = Served::start(&books, &["--no-pages", "--tls-certificate", &certificate, "--tls-key", &key]);
    let url = format!("https://localhost:{}/health", served.reports.port());
    let asked = Command::new("curl").args(["-sS", "--cacert", &certificate, &url]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "ok\n", "{asked:?}");
    // Who does not trust the certificate, and who does not encrypt, gets nothing.
    let distrusting = Command::new("curl").args(["-sS", &url]).output().unwrap();
    assert!(!distrusting.status.success(), "{distrusting:?}");
    let plain = Command::new("curl").args(["-sS", &url.replace("https", "http")]).output().unwrap();
    assert!(!String::from_utf8_lossy(&plain.stdout).contains("ok"), "{plain:?}");
    drop(served);
    // What does not fit is told at once, with the file.
    let (_, other) = made("other");
    for (certificate, key, told) in [
        (&certificate, &other, "other.key: it does not fit the certificate"),
        (&key, &key, "own.key: it holds no certificate as PEM"),
        (&certificate, &certificate, "own.pem: it holds no key as PEM"),
    ] {
        let refused = command::run(
            &books,
            &["serve", "--listen", "127.0.0.1:0", "--no-pages", "--tls-certificate", certificate, "--tls-key", key],
        );
        assert!(refused.code == 1 && refused.err.contains(told), "{}", refused.err);
    }
}
