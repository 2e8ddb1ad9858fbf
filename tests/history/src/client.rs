//! A client of a scenario; on request one that breaks atomicity, to show that the scenarios notice.

use std::collections::HashMap;

use dunlin_test_support::connection::Connection;
use dunlin_test_support::process::Server;
use dunlin_test_support::resp::{self, Reply, quoted};

/// A command as its words.
pub type Command = Vec<Vec<u8>>;

/// A connection that sends batches of commands.
pub struct Client {
    connection: Connection,
    broken: bool,
    /// Values that a broken client remembers, to answer reads with outdated ones.
    stale: HashMap<Vec<u8>, Reply>,
    /// The replies of the commands of its transaction: each has run at once.
    queued: Option<Vec<Reply>>,
}

/// Builds a command from words.
#[macro_export]
macro_rules! command {
    ($($word:expr),+ $(,)?) => { vec![$(AsRef::<[u8]>::as_ref(&$word).to_vec()),+] };
}

impl Client {
    /// Connects; clients with an even index over the Unix socket, the others over TCP.
    pub fn connect(server: &Server, index: usize, broken: bool) -> Result<Self, String> {
        let connection = if index.is_multiple_of(2) {
            Connection::unix(&server.socket())
        } else {
            Connection::tcp(server.port())
        };
        let connection = connection.map_err(|error| format!("cannot connect: {error}"))?;
        Ok(Client { connection, broken, stale: HashMap::new(), queued: None })
    }

    /// Whether it runs as several commands a command that should be one.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Sends one command.
    pub fn call(&mut self, command: Command) -> Result<Reply, String> {
        Ok(self.batch(&[command])?.remove(0))
    }

    /// Sends one command whose reply is an integer.
    pub fn integer(&mut self, command: Command) -> Result<i64, String> {
        let reply = self.call(command)?;
        reply.integer().ok_or_else(|| format!("not an integer: {}", reply.show()))
    }

    /// Sends one command whose reply is a string.
    pub fn text(&mut self, command: Command) -> Result<Vec<u8>, String> {
        let reply = self.call(command)?;
        reply.bytes().map(<[u8]>::to_vec).ok_or_else(|| format!("not a string: {}", reply.show()))
    }

    /// Sends commands in one pipeline; errors of the commands themselves are replies.
    pub fn batch(&mut self, commands: &[Command]) -> Result<Vec<Reply>, String> {
        if self.broken {
            return commands.iter().map(|command| self.in_pieces(command)).collect();
        }
        self.pipeline(commands)
    }

    fn pipeline(&mut self, commands: &[Command]) -> Result<Vec<Reply>, String> {
        let mut bytes = Vec::new();
        for command in commands {
            resp::encode_command(command, &mut bytes);
        }
        let (replies, error) = self.connection.exchange(&bytes, commands.len());
        match error {
            None => Ok(replies),
            Some(error) => {
                Err(format!("{}: {error}", quoted(&commands[replies.len().min(commands.len() - 1)][0])))
            }
        }
    }

    fn one(&mut self, command: Command) -> Result<Reply, String> {
        Ok(self.pipeline(&[command])?.remove(0))
    }

    /// The command as several smaller ones, as a server without atomicity would run it.
    fn in_pieces(&mut self, command: &Command) -> Result<Reply, String> {
        let integer = |n: i64| Reply::Line(b':', n.to_string().into_bytes());
        let ok = || Reply::Line(b'+', b"OK".to_vec());
        let key = command.get(1).cloned().unwrap_or_default();
        let number = |reply: &Reply| {
            reply.bytes().and_then(|text| std::str::from_utf8(text).ok()?.parse::<i64>().ok()).unwrap_or(0)
        };
        match &command[0][..] {
            b"MULTI" => {
                self.queued = Some(Vec::new());
                Ok(ok())
            }
            b"WATCH" => Ok(ok()),
            b"EXEC" => Ok(Reply::Array(b'*', self.queued.take().unwrap_or_default())),
            _ if self.queued.is_some() => {
                let reply = self.one(command.clone())?;
                self.queued.iter_mut().for_each(|queued| queued.push(reply.clone()));
                Ok(Reply::Line(b'+', b"QUEUED".to_vec()))
            }
            b"INCR" => {
                let next = number(&self.one(command!["GET", key])?) + 1;
                self.one(command!["SET", key, next.to_string()])?;
                Ok(integer(next))
            }
            b"SETNX" => {
                let exists = self.one(command!["EXISTS", key])?.integer() == Some(1);
                if !exists {
                    self.one(command!["SET", key, command[2]])?;
                }
                Ok(integer(i64::from(!exists)))
            }
            b"SET" if command.len() == 4 => {
                let exists = self.one(command!["EXISTS", key])?.integer() == Some(1);
                if exists {
                    return Ok(Reply::Null(b'$'));
                }
                self.one(command!["SET", key, command[2]])
            }
            b"GETSET" => {
                let old = self.one(command!["GET", key])?;
                self.one(command!["SET", key, command[2]])?;
                Ok(old)
            }
            b"APPEND" => {
                let old = self.one(command!["GET", key])?;
                let new = [old.bytes().unwrap_or_default(), &command[2]].concat();
                self.one(command!["SET", key, new])?;
                Ok(integer(new.len() as i64))
            }
            b"MSET" => {
                for pair in command[1..].chunks(2) {
                    self.one(command!["SET", pair[0], pair[1]])?;
                }
                Ok(ok())
            }
            b"MSETNX" => {
                let mut set = 0;
                for pair in command[1..].chunks(2) {
                    set = self.one(command!["SETNX", pair[0], pair[1]])?.integer().unwrap_or(0);
                }
                Ok(integer(set))
            }
            b"MGET" => {
                let values: Result<Vec<Reply>, String> =
                    command[1..].iter().map(|key| self.one(command!["GET", key])).collect();
                Ok(Reply::Array(b'*', values?))
            }
            b"EXISTS" => {
                let mut sum = 0;
                for key in &command[1..] {
                    sum += self.one(command!["EXISTS", key])?.integer().unwrap_or(0);
                }
                Ok(integer(sum))
            }
            b"RENAME" => match self.one(command!["GET", key])? {
                Reply::Null(_) => Ok(Reply::Line(b'-', b"ERR no such key".to_vec())),
                value => {
                    self.one(command!["DEL", key])?;
                    self.one(command!["SET", command[2], value.bytes().unwrap_or_default()])?;
                    Ok(ok())
                }
            },
            b"COPY" => {
                let front = self.one(command!["GETRANGE", key, "0", "9999"])?;
                let back = self.one(command!["GETRANGE", key, "10000", "-1"])?;
                let whole = [front.bytes().unwrap_or_default(), back.bytes().unwrap_or_default()].concat();
                self.one(command!["SET", command[2], whole])?;
                Ok(integer(1))
            }
            b"GET" => {
                let fresh = self.one(command.clone())?;
                Ok(self.stale.insert(key, fresh.clone()).unwrap_or(fresh))
            }
            _ => self.one(command.clone()),
        }
    }
}
