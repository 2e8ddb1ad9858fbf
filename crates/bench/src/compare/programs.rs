//! Rows about transactions, scripts and messages.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dunlin_resp::Value;

use super::measure::{Conditions, run};
use super::rows::Transport;
use super::server::Server;
use crate::figures::{Sample, sample};
use crate::random::Random;
use crate::target::encode;

const CLIENTS: usize = 50;
/// Transactions or messages that are sent at once.
const PIPELINE: usize = 16;
/// Commands of one transaction.
const COMMANDS: usize = 10;
const SUBSCRIBERS: usize = 100;
const DATA: &str = "sixteen bytes ..";
const CHANNEL: &str = "channel";
/// Removes the keys that scripts have written.
const FORGET: &str = "for _, key in ipairs(redis.call('keys', 'script:*')) do redis.call('del', key) end";
/// Reads and writes that take longer have failed.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

impl Conditions {
    /// CPU time of a MULTI of ten SETs of random keys, EXEC included.
    pub(super) fn transaction_cost(&self, server: &Server) -> Result<Vec<Sample>, String> {
        let told = |error: io::Error| error.to_string();
        let mut clients =
            (0..CLIENTS).map(|_| connect(server)).collect::<io::Result<Vec<_>>>().map_err(told)?;
        let mut random = Random::new(self.seed);
        let one =
            [&b"+OK\r\n"[..], &b"+QUEUED\r\n".repeat(COMMANDS), b"*10\r\n", &b"+OK\r\n".repeat(COMMANDS)];
        let expected = one.concat().repeat(PIPELINE);
        let (mut request, mut replies) = (Vec::new(), vec![0; expected.len()]);
        let mut turn = |replies: &mut Vec<u8>| -> Result<(), String> {
            for client in &mut clients {
                request.clear();
                for _ in 0..PIPELINE {
                    encode(&["MULTI"], &mut request);
                    for _ in 0..COMMANDS {
                        let key = format!("key:{:012}", random.below(self.scale.keys));
                        encode(&["SET", &key, DATA], &mut request);
                    }
                    encode(&["EXEC"], &mut request);
                }
                client.write_all(&request).map_err(told)?;
            }
            for client in &mut clients {
                client.read_exact(replies).map_err(told)?;
                if *replies != expected {
                    return Err("a transaction was answered with something else".into());
                }
            }
            Ok(())
        };
        let mut turns_for = |duration: Duration, replies: &mut Vec<u8>| -> Result<u64, String> {
            let (start, mut turns) = (Instant::now(), 0);
            while start.elapsed() < duration {
                turn(replies)?;
                turns += 1;
            }
            Ok(turns)
        };
        turns_for(self.scale.warmup, &mut replies)?;
        let cpu_before_ns = server.cpu_ns()?;
        let turns = turns_for(self.scale.measured, &mut replies)?;
        let cpu_ns = server.cpu_ns()? - cpu_before_ns;
        let transactions = turns * (CLIENTS * PIPELINE) as u64;
        Ok(vec![sample("server CPU per transaction", "µs", cpu_ns as f64 / 1e3 / transactions as f64)])
    }

    /// CPU time of a message for each of the subscribers that it is delivered to.
    pub(super) fn publish_cost(&self, server: &Server) -> Result<Vec<Sample>, String> {
        let told = |error: io::Error| error.to_string();
        let mut subscribers = Vec::new();
        for _ in 0..SUBSCRIBERS {
            let mut subscriber = connect(server).map_err(told)?;
            ask(
                &mut subscriber,
                &["SUBSCRIBE", CHANNEL],
                "*3\r\n$9\r\nsubscribe\r\n$7\r\nchannel\r\n:1\r\n",
            )?;
            subscriber.set_nonblocking(true).map_err(told)?;
            subscribers.push(subscriber);
        }
        let mut message = Vec::new();
        encode(&["message", CHANNEL, DATA], &mut message);
        let (delivered_bytes, done) = (AtomicU64::new(0), AtomicBool::new(false));
        let (messages, cpu_ns) = thread::scope(|scope| {
            let reader = scope.spawn(|| drain(&mut subscribers, &delivered_bytes, &done));
            let published = self.publish(server, message.len() as u64, &delivered_bytes);
            done.store(true, Ordering::Relaxed);
            reader.join().expect("the reading thread panicked").map_err(told)?;
            published
        })?;
        let deliveries = messages * SUBSCRIBERS as u64;
        Ok(vec![sample("server CPU per delivery", "µs", cpu_ns as f64 / 1e3 / deliveries as f64)])
    }

    /// Publishes for as long as is measured, every connection never further ahead than one pipeline: how many
    /// messages, and what CPU time they took.
    fn publish(
        &self,
        server: &Server,
        message_bytes: u64,
        delivered_bytes: &AtomicU64,
    ) -> Result<(u64, u64), String> {
        let told = |error: io::Error| error.to_string();
        let mut publishers =
            (0..CLIENTS).map(|_| connect(server)).collect::<io::Result<Vec<_>>>().map_err(told)?;
        let mut request = Vec::new();
        (0..PIPELINE).for_each(|_| encode(&["PUBLISH", CHANNEL, DATA], &mut request));
        let expected = format!(":{SUBSCRIBERS}\r\n").repeat(PIPELINE).into_bytes();
        let mut replies = vec![0; expected.len()];
        let mut messages = 0;
        let mut publish_for = |duration: Duration| -> Result<u64, String> {
            let (start, before) = (Instant::now(), messages);
            while start.elapsed() < duration {
                for publisher in &mut publishers {
                    publisher.write_all(&request).map_err(told)?;
                }
                for publisher in &mut publishers {
                    publisher.read_exact(&mut replies).map_err(told)?;
                    if replies != expected {
                        return Err("a message did not reach all subscribers".into());
                    }
                }
                messages += (CLIENTS * PIPELINE) as u64;
                await_delivered(delivered_bytes, messages * SUBSCRIBERS as u64 * message_bytes)?;
            }
            Ok(messages - before)
        };
        publish_for(self.scale.warmup)?;
        let cpu_before_ns = server.cpu_ns()?;
        let published = publish_for(self.scale.measured)?;
        Ok((published, server.cpu_ns()? - cpu_before_ns))
    }

    /// Time that one script takes while all workers run scripts on keys of their own.
    pub(super) fn script_time(&self, server: &Server, text: &str) -> Result<Vec<Sample>, String> {
        let loaded = server.client()?.call(&["SCRIPT", "LOAD", text]).map_err(|error| error.to_string())?;
        let Value::Bulk(sha) = loaded else { return Err(format!("SCRIPT LOAD answered {loaded:?}")) };
        let call = format!("EVALSHA {} 1 script:__rand_int__", String::from_utf8_lossy(&sha));
        let mut plan = self.plan(&call, Some(self.scale.keys), DATA.len());
        // Alone, each call costs the client a tenth of the script's time, on the processors of the workers.
        plan.pipeline = PIPELINE;
        plan.requests = None;
        plan.duration = Some(self.scale.warmup);
        run(server, Transport::Tcp, &plan)?;
        plan.duration = Some(self.scale.measured);
        let cpu_before_ns = server.cpu_ns()?;
        let outcome = run(server, Transport::Tcp, &plan)?;
        let cpu_ns = server.cpu_ns()? - cpu_before_ns;
        // The other rows of these servers count on having only the preloaded keys.
        server.client()?.call(&["EVAL", FORGET, "0"]).map_err(|error| error.to_string())?;
        // Workers that stood in each other's way would need more of the one or the other. The first shows on a
        // machine that has a processor for each of them, the second on any.
        Ok(vec![
            sample("time per script", "µs", 1e6 / outcome.requests_per_second()),
            sample("server CPU per script", "µs", cpu_ns as f64 / 1e3 / outcome.tally.replies as f64),
        ])
    }
}

fn connect(server: &Server) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", server.port()))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT_LIMIT))?;
    stream.set_write_timeout(Some(WAIT_LIMIT))?;
    Ok(stream)
}

fn ask(stream: &mut TcpStream, words: &[&str], answer: &str) -> Result<(), String> {
    let (mut request, mut reply) = (Vec::new(), vec![0; answer.len()]);
    encode(words, &mut request);
    stream
        .write_all(&request)
        .and_then(|()| stream.read_exact(&mut reply))
        .map_err(|error| error.to_string())?;
    if reply == answer.as_bytes() { Ok(()) } else { Err(format!("{} was answered otherwise", words[0])) }
}

fn await_delivered(delivered_bytes: &AtomicU64, wanted: u64) -> Result<(), String> {
    let asked = Instant::now();
    while delivered_bytes.load(Ordering::Relaxed) < wanted {
        if asked.elapsed() > WAIT_LIMIT {
            return Err("messages were lost".into());
        }
        thread::yield_now();
    }
    Ok(())
}

/// Reads the bytes that come to any of the streams until `done` is set, and counts them.
fn drain(streams: &mut [TcpStream], bytes: &AtomicU64, done: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    while !done.load(Ordering::Relaxed) {
        for stream in &mut *streams {
            match stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => drop(bytes.fetch_add(count as u64, Ordering::Relaxed)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
