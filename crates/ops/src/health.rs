//! `dunlin health`: asks `/health`, and ends with 0 if commands are served. For containers that have no other program.

use std::{
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use clap::Parser;

/// How long the answer may take.
const WAIT_LIMIT: Duration = Duration::from_secs(4);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;

/// Asks a server's /health; ends with 0 where commands are served, and with 1 and the reason where not.
#[derive(Debug, Parser)]
#[command(name = "health", bin_name = "dunlin health", version, disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Server's host name or address
    #[arg(short = 'h', value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Its http-port
    #[arg(short = 'p', value_name = "PORT", default_value_t = 8379)]
    port: u16,
    /// Show this help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(crate) fn run(Arguments { host, port, .. }: &Arguments) -> Result<(), String> {
    let answer = ask(host, *port).map_err(|error| format!("{host}:{port}: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.split(' ').nth(1) == Some("200") {
        dunlin_print::say!("{}", body.trim_end());
        return Ok(());
    }
    Err(if body.is_empty() { "it answered no HTTP".to_owned() } else { body.trim_end().to_owned() })
}

fn ask(host: &str, port: u16) -> std::io::Result<String> {
    let none = || std::io::Error::other("the host has no address");
    let address = (host, port).to_socket_addrs()?.next().ok_or_else(none)?;
    let mut stream = TcpStream::connect_timeout(&address, WAIT_LIMIT)?;
    stream.set_read_timeout(Some(WAIT_LIMIT))?;
    stream.set_write_timeout(Some(WAIT_LIMIT))?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}
