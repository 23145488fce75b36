//! Helpers of unit tests: temporary folders, which are removed also if the test fails, random
//! numbers, and an HTTP server.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A fresh folder that lives as long as the value.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new(what: &str) -> TempDir {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("pico-test-{what}-{}-{nth}", std::process::id()));
        std::fs::create_dir(&path).expect("a fresh folder for the test");
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A pseudo-random number generator (splitmix64) with a seed, so that failures are reproducible.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// A server of a few answers on this machine, one after the other: `abc`, `moved` to it, `loop` to
/// itself, `cut` off in the middle, `empty`, and nothing else.
pub(crate) struct Server {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn new() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let server =
            Server { address: listener.local_addr().expect("an address"), asked: Arc::default() };
        let asked = server.asked.clone();
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                asked.fetch_add(1, Ordering::Relaxed);
                answer(stream);
            }
        });
        server
    }
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }
    /// Returns the number of requests so far.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn answer(mut stream: TcpStream) {
    let mut request = BufReader::new(&stream);
    let mut first = String::new();
    let _ = request.read_line(&mut first);
    // The rest of the request is read, or closing the connection would take the answer back.
    let mut line = String::new();
    while request.read_line(&mut line).is_ok_and(|n| n > 2) {
        line.clear();
    }
    let (status, more, body) = match first.split(' ').nth(1).unwrap_or_default() {
        "/abc" => ("200 OK", "Content-Length: 3", "abc"),
        "/moved" => ("302 Found", "Location: /abc\r\nContent-Length: 0", ""),
        "/local" => ("302 Found", "Location: file:///etc/hostname\r\nContent-Length: 0", ""),
        "/long" => ("200 OK", "Connection: close", "abcdefgh"),
        "/loop" => ("302 Found", "Location: /loop\r\nContent-Length: 0", ""),
        "/cut" => ("200 OK", "Content-Length: 9", "abc"),
        "/empty" => ("200 OK", "Content-Length: 0", ""),
        _ => ("404 Not Found", "Content-Length: 4", "none"),
    };
    let _ = write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\n{more}\r\n\r\n{body}");
}
