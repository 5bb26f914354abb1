//! Answers `GET /metrics` on an address of this machine alone.
//!
//! One request at a time, of a few KiB, within a few seconds: whoever asks more gets nothing. Pages of other origins learn nothing
//! either: a request that does not name this machine is refused.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::metrics::Board;

const REQUEST_BYTES_MAX: usize = 8 << 10;
const PATIENCE: Duration = Duration::from_secs(5);
const HEADERS_MAX: usize = 64;

/// Listens, and answers in a thread of its own until the program ends. Where it listens.
///
/// # Errors
/// Where the address cannot be listened at.
pub fn serve(
    address: SocketAddr,
    board: Arc<Mutex<Board>>,
    now_us: impl Fn() -> i64 + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    // What it keeps is small.
    let thread = std::thread::Builder::new().name("metrics".into()).stack_size(256 << 10);
    thread.spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever asked may have gone.
            let _ = answer(stream, &board, now_us());
        }
    })?;
    Ok(address)
}

fn answer(mut stream: TcpStream, board: &Mutex<Board>, now_us: i64) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let (status, body) = match asked(&mut stream)? {
        Asked::Metrics => match board.lock() {
            Ok(board) => ("200 OK", board.text(now_us)),
            Err(_) => ("500 Internal Server Error", "the figures cannot be read\n".to_owned()),
        },
        Asked::Else => ("404 Not Found", "ask for /metrics\n".to_owned()),
        Asked::OtherHost => ("421 Misdirected Request", "this answers on localhost, 127.0.0.1 and [::1]\n".to_owned()),
        Asked::OtherMethod => ("405 Method Not Allowed", "GET only\n".to_owned()),
        Asked::Nonsense => ("400 Bad Request", "that is no request\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

enum Asked {
    Metrics,
    Else,
    OtherHost,
    OtherMethod,
    Nonsense,
}

fn asked(stream: &mut TcpStream) -> io::Result<Asked> {
    let until = Instant::now() + PATIENCE;
    let mut read = Vec::new();
    let mut part = [0; 1_024];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || read.len() > REQUEST_BYTES_MAX {
            return Ok(Asked::Nonsense);
        }
        stream.set_read_timeout(Some(left))?;
        let length = stream.read(&mut part)?;
        read.extend_from_slice(part.get(..length).unwrap_or_default());
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&read) {
            Ok(httparse::Status::Complete(_)) => return Ok(what(&request)),
            Ok(httparse::Status::Partial) if length > 0 => {}
            Ok(httparse::Status::Partial) | Err(_) => return Ok(Asked::Nonsense),
        }
    }
}

fn what(request: &httparse::Request<'_, '_>) -> Asked {
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let host = hosts.next().and_then(|header| std::str::from_utf8(header.value).ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or(host, |(name, _)| name);
    if !["localhost", "127.0.0.1", "[::1]"].contains(&name) || hosts.next().is_some() {
        return Asked::OtherHost;
    }
    let path = request.path.unwrap_or_default();
    match (request.method, path.split_once('?').map_or(path, |(path, _)| path)) {
        (Some("GET"), "/metrics") => Asked::Metrics,
        (Some("GET"), _) => Asked::Else,
        _ => Asked::OtherMethod,
    }
}
