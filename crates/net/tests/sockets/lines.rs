//! The service under the tests: requests are lines, which makes every byte visible.
//!
//! ```text
//! echo TEXT       TEXT
//! fill N          N times 'f'
//! big N           N times 'b', shared rather than copied
//! put N           (followed by N bytes) the sum of these bytes
//! id              the client's number
//! park            parks until a message comes, whose text is the answer
//! nap MS          parks for so many milliseconds, then "rested"
//! tell ID TEXT    sends TEXT as a message
//! announce TEXT   sends TEXT as a message to everyone
//! kill ID         closes that client
//! hold            has the others attended to until one of them says so; then "held"
//! let go          ends that
//! quit            "bye", then closes
//! ```
//!
//! Answers end with LF.

use std::sync::Arc;
use std::time::Duration;

use dunlin_net::{Client, EventLoop, Next, Now, REPLY_BYTES_MAX, Served, Service, WorkerContext};
use dunlin_resp::ReplyBuffer;

pub struct Lines {
    context: WorkerContext<String>,
    now: Now,
    big: Arc<Vec<u8>>,
    holding: bool,
}

pub struct Session {
    client: Arc<Client>,
    parked: bool,
}

impl Lines {
    pub fn new(context: WorkerContext<String>) -> Self {
        Self { context, now: Now::read(), big: Arc::default(), holding: false }
    }

    fn run(
        &mut self,
        session: &mut Session,
        line: &str,
        reply: &mut ReplyBuffer,
        event_loop: Option<&mut EventLoop<Self>>,
    ) -> Next {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = || rest.parse::<u64>().expect("a number");
        match name {
            "echo" => reply.raw(rest.as_bytes()),
            "fill" => reply.raw(&vec![b'f'; number() as usize]),
            "big" => {
                if self.big.len() != number() as usize {
                    self.big = Arc::new(vec![b'b'; number() as usize]);
                }
                reply.bulk_shared(&self.big);
                return Next::Read;
            }
            "id" => reply.raw(session.client.id().to_string().as_bytes()),
            "park" => {
                session.parked = true;
                return Next::Park { until: None };
            }
            "nap" => {
                session.parked = true;
                return Next::Park { until: Some(self.now.instant + Duration::from_millis(number())) };
            }
            "tell" => {
                let (id, text) = rest.split_once(' ').expect("tell ID TEXT");
                if let Some(client) = self.context.clients.find(id.parse().expect("a number")) {
                    self.context.queues.send(client.address, text.to_owned());
                }
                reply.raw(b"told");
            }
            "announce" => {
                self.context.queues.send_to_everyone(rest.to_owned());
                return Next::Read;
            }
            "kill" => {
                if let Some(client) = self.context.clients.find(number()) {
                    self.context.queues.kill(client.address);
                }
                reply.raw(b"killed");
            }
            "hold" => {
                let event_loop = event_loop.expect("nobody else holds");
                self.holding = true;
                while self.holding && !event_loop.is_stopping() {
                    event_loop.attend(self);
                }
                reply.raw(b"held");
            }
            "let" => {
                assert!(event_loop.is_none(), "it is let go in the middle");
                self.holding = false;
                reply.raw(b"done");
            }
            "quit" => {
                reply.raw(b"bye\n");
                return Next::CloseAfterReply;
            }
            _ => panic!("no request {line:?}"),
        }
        reply.raw(b"\n");
        Next::Read
    }
}

impl Service for Lines {
    type Session = Session;
    type Message = String;

    fn open(&mut self, client: &Arc<Client>) -> Session {
        Session { client: client.clone(), parked: false }
    }

    fn tick(&mut self, now: Now) {
        self.now = now;
    }

    fn serve(
        &mut self,
        session: &mut Session,
        input: &[u8],
        reply: &mut ReplyBuffer,
        mut event_loop: Option<&mut EventLoop<Self>>,
    ) -> Served {
        assert!(!session.parked, "a parked connection is not served");
        assert!(!input.is_empty() && reply.is_empty());
        let mut consumed = 0;
        let mut next = Next::Read;
        while next == Next::Read {
            let rest = &input[consumed..];
            let Some(length) = rest.iter().position(|&byte| byte == b'\n') else { break };
            let line = std::str::from_utf8(&rest[..length]).expect("text");
            if let Some(count) = line.strip_prefix("put ") {
                let count: usize = count.parse().expect("a number");
                let Some(payload) = rest.get(length + 1..length + 1 + count) else {
                    return Served { consumed, next, wanted: length + 1 + count - rest.len(), detached: 0 };
                };
                let sum: u64 = payload.iter().map(|&byte| u64::from(byte)).sum();
                reply.raw(format!("{sum}\n").as_bytes());
                consumed += length + 1 + count;
            } else {
                next = self.run(session, line, reply, event_loop.as_deref_mut());
                consumed += length + 1;
            }
            if next == Next::Read && reply.len() >= REPLY_BYTES_MAX {
                next = Next::Again;
            }
        }
        Served { consumed, next, wanted: 0, detached: 0 }
    }

    fn resume(&mut self, session: &mut Session, reply: &mut ReplyBuffer) -> Next {
        assert!(std::mem::take(&mut session.parked));
        reply.raw(b"rested\n");
        Next::Read
    }

    fn deliver(&mut self, session: &mut Session, message: String, reply: &mut ReplyBuffer) -> Option<Next> {
        reply.raw(format!("{message}\n").as_bytes());
        match message.as_str() {
            "leave" => Some(Next::CloseAfterReply),
            _ if std::mem::take(&mut session.parked) => Some(Next::Read),
            _ => None,
        }
    }

    fn receive(&mut self, message: String) {
        panic!("nobody sends messages to services here: {message}");
    }

    fn close(&mut self, session: Session) {
        let id = session.client.id();
        assert!(
            self.context.clients.find(id).is_some(),
            "client {id} was listed no more before its session ended"
        );
    }

    fn background(&mut self, _now: Now) -> Duration {
        Duration::from_secs(60)
    }
}
