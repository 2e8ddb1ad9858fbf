//! memcached's text protocol, as much of it as the lab needs.
//!
//! ```text
//! set KEY 0 0 LENGTH⏎BYTES⏎  →  STORED⏎
//! get KEY⏎                   →  VALUE KEY 0 LENGTH⏎BYTES⏎END⏎  or  END⏎
//! stats⏎                     →  STAT curr_items N⏎ … END⏎
//! ```

use std::io::{BufRead, BufReader, Read, Write};

use dunlin_bench::target::{Stream, Target};

/// Longest line that the server may send.
const LINE_BYTES_MAX: u64 = 4096;
/// Longest value that is read.
const VALUE_BYTES_MAX: usize = 256 << 20;

/// A blocking connection.
pub struct Memcached {
    stream: BufReader<Stream>,
}

impl Memcached {
    /// Connects.
    pub fn connect(target: &Target) -> Result<Self, String> {
        Ok(Self { stream: BufReader::new(target.connect().map_err(|error| error.to_string())?) })
    }

    /// Stores a value.
    pub fn set(&mut self, key: &str, value: &[u8]) -> Result<(), String> {
        let mut request = format!("set {key} 0 0 {}\r\n", value.len()).into_bytes();
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        self.send(&request)?;
        match self.line()?.as_str() {
            "STORED" => Ok(()),
            other => Err(format!("wrong answer to set: {other}")),
        }
    }

    /// Reads a value.
    pub fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, String> {
        self.send(format!("get {key}\r\n").as_bytes())?;
        let line = self.line()?;
        if line == "END" {
            return Ok(None);
        }
        let length = match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["VALUE", found, _, length] if *found == key => length.parse::<usize>().ok(),
            _ => None,
        };
        let length = length
            .filter(|length| *length <= VALUE_BYTES_MAX)
            .ok_or_else(|| format!("wrong answer to get: {line}"))?;
        let mut value = Vec::new();
        let mut rest = Read::take(&mut self.stream, length as u64 + 2);
        rest.read_to_end(&mut value).map_err(|error| error.to_string())?;
        if value.len() != length + 2 || !value.ends_with(b"\r\n") || self.line()? != "END" {
            return Err("a value does not end where it should".into());
        }
        value.truncate(length);
        Ok(Some(value))
    }

    /// Number of items that it holds.
    pub fn items(&mut self) -> Result<u64, String> {
        self.send(b"stats\r\n")?;
        let mut items = None;
        loop {
            let line = self.line()?;
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["END"] => return items.ok_or_else(|| "stats has no curr_items".into()),
                ["STAT", "curr_items", count] => items = count.parse().ok(),
                ["STAT", ..] => {}
                _ => return Err(format!("wrong answer to stats: {line}")),
            }
        }
    }

    /// Removes keys, whether they are there or not. (`flush_all` would be one command, but the items
    /// stay counted until a client looks for them.)
    pub fn delete(&mut self, keys: impl Iterator<Item = String>) -> Result<(), String> {
        for key in keys {
            self.send(format!("delete {key}\r\n").as_bytes())?;
            match self.line()?.as_str() {
                "DELETED" | "NOT_FOUND" => {}
                other => return Err(format!("wrong answer to delete: {other}")),
            }
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.get_mut().write_all(bytes).map_err(|error| format!("the connection broke: {error}"))
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        let mut limited = Read::take(&mut self.stream, LINE_BYTES_MAX);
        limited.read_until(b'\n', &mut line).map_err(|error| format!("the connection broke: {error}"))?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None => Err("the server closed the connection or does not speak memcached's protocol".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_bench::target::Address;
    use std::net::TcpListener;
    use std::thread;

    /// A server that answers every connection with the same bytes.
    fn answering(bytes: &'static [u8]) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(bytes).unwrap();
        });
        Target::new(Address::Tcp("127.0.0.1".into(), port))
    }

    fn get(bytes: &'static [u8]) -> Result<Option<Vec<u8>>, String> {
        Memcached::connect(&answering(bytes)).unwrap().get("k")
    }

    #[test]
    fn values_are_read_by_their_length() {
        assert_eq!(get(b"VALUE k 0 6\r\nEND\r\n.\r\nEND\r\n"), Ok(Some(b"END\r\n.".to_vec())));
        assert_eq!(get(b"END\r\n"), Ok(None));
    }

    #[test]
    fn wrong_answers_are_failures() {
        for bytes in [
            &b"VALUE other 0 1\r\nx\r\nEND\r\n"[..],
            b"VALUE k 0 2\r\nx\r\nEND\r\n",
            b"VALUE k 0 99999999999\r\n",
            b"VALUE k 0 -1\r\n",
            b"ERROR\r\n",
            b"",
        ] {
            assert!(get(bytes).is_err(), "{}", bytes.escape_ascii());
        }
        let refused = Memcached::connect(&answering(b"SERVER_ERROR too large\r\n")).unwrap().set("k", b"v");
        assert_eq!(refused, Err("wrong answer to set: SERVER_ERROR too large".into()));
    }
}
