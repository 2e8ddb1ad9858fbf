//! A server that decodes requests and answers a constant: the limit that the real server's
//! figures are held against, since it does everything but execute.
//!
//! ```sh
//! cargo run --release -p dunlin-net --example constant_answer -- --port 7000 --threads 1
//! ```
//!
//! `GET` is answered with 100 bytes, everything else with `+OK`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use dunlin_net::{
    Client, EventLoop, Limits, ListenOptions, Next, Now, REPLY_BYTES_MAX, Running, Served, Service, Workers,
};
use dunlin_resp::{Batch, Decoded, Limits as RequestLimits, ReplyBuffer, RequestDecoder};

const ANSWER: [u8; 100] = [b'x'; 100];
/// Size of a worker's stack.
const STACK_BYTES: usize = 2 << 20;
/// Requests decoded before their replies are looked at.
const BATCH_MAX: usize = 256;

#[derive(Default)]
struct Constant {
    batch: Batch,
}

impl Service for Constant {
    type Session = RequestDecoder;
    type Message = ();

    fn open(&mut self, _client: &Arc<Client>) -> RequestDecoder {
        RequestDecoder::default()
    }

    fn tick(&mut self, _now: Now) {}

    fn serve(
        &mut self,
        decoder: &mut RequestDecoder,
        input: &[u8],
        reply: &mut ReplyBuffer,
        _: Option<&mut EventLoop<Self>>,
    ) -> Served {
        let limits = RequestLimits { bulk_bytes_max: 512 << 20, authenticated: true };
        let mut consumed = 0;
        loop {
            self.batch.clear();
            let decoded = decoder.decode(input, &mut consumed, &mut self.batch, &limits, BATCH_MAX);
            for index in 0..self.batch.len() {
                let name = self.batch.spans(index)[0];
                if self.batch.bytes(input, name).eq_ignore_ascii_case(b"get") {
                    reply.bulk(&ANSWER);
                } else {
                    reply.ok();
                }
            }
            let (next, wanted) = match decoded {
                Ok(Decoded::Full) if reply.len() < REPLY_BYTES_MAX => continue,
                Ok(Decoded::Full) => (Next::Again, 0),
                Ok(Decoded::Incomplete { wanted }) => (Next::Read, wanted),
                Err(error) => {
                    reply.error(format!("ERR {error}"));
                    (Next::CloseAfterReply, 0)
                }
            };
            return Served { consumed, next, wanted, detached: 0 };
        }
    }

    fn resume(&mut self, _decoder: &mut RequestDecoder, _reply: &mut ReplyBuffer) -> Next {
        Next::Read
    }

    fn deliver(&mut self, _: &mut RequestDecoder, (): (), _: &mut ReplyBuffer) -> Option<Next> {
        None
    }

    fn receive(&mut self, (): ()) {}

    fn close(&mut self, _decoder: RequestDecoder) {}

    fn background(&mut self, _now: Now) -> Duration {
        Duration::from_secs(3600)
    }
}

struct Options {
    port: Option<u16>,
    unix_path: Option<PathBuf>,
    threads: usize,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { port: None, unix_path: None, threads: 1 };
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
            let bad = || format!("{flag} {value}: not a valid number");
            match flag.as_str() {
                "--port" => options.port = Some(value.parse().map_err(|_| bad())?),
                "--unixsocket" => options.unix_path = Some(value.into()),
                "--threads" => {
                    options.threads = value.parse().ok().filter(|&count| count > 0).ok_or_else(bad)?;
                }
                // Every server of a comparison is started with these; here there is nothing to save.
                "--bind" | "--save" | "--appendonly" => {}
                _ => {
                    return Err(format!("unknown flag {flag}; there are --port, --unixsocket and --threads"));
                }
            }
        }
        Ok(options)
    }
}

fn start(options: Options) -> Result<Running<()>, String> {
    let workers = Workers {
        threads: options.threads,
        listen: ListenOptions {
            addresses: vec!["127.0.0.1".to_owned()],
            port: options.port,
            tls_port: None,
            backlog: 511,
            unix_path: options.unix_path,
            unix_permissions: None,
        },
        limits: Arc::new(arc_swap::ArcSwap::from_pointee(Limits::default())),
        tls: Arc::default(),
    };
    workers.start(STACK_BYTES, |_| Constant::default()).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let ended = Options::parse(std::env::args().skip(1))
        .and_then(start)
        .and_then(|running| running.join().map_err(|error| error.to_string()));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("constant_answer: {error}");
            ExitCode::FAILURE
        }
    }
}
