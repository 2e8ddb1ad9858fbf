//! A side of the adoption: its server, and what that is asked again and again.

use std::fmt;

use dunlin_bench::{
    target::{Address, Client, Credentials, Info, Target, encode},
    uri,
};
use dunlin_resp::Value;

use crate::server::{ask, strings, text};

/// The product that a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    Dunlin,
    Redis,
    Valkey,
}

impl fmt::Display for Product {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, out)
    }
}

/// A server, with a connection to it.
pub(super) struct Side {
    pub(super) name: &'static str,
    pub(super) target: Target,
    pub(super) client: Client,
    pub(super) product: Product,
    /// Major and minor.
    pub(super) version: (u32, u32),
    /// The address at which the other one reaches it.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Side {
    /// Connects, and asks who it is.
    pub(super) fn connect(name: &'static str, given: &str, other: Option<&str>) -> Result<Self, String> {
        let target = uri::parse_with(given, None)?;
        let Address::Tcp(host, port) = target.address.clone() else {
            return Err(format!(
                "the {name} server has to be reached over TCP: the other one connects to it"
            ));
        };
        let (host, port) = match other {
            None => (host, port),
            Some(address) => {
                let split =
                    address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
                let (host, port) = split.ok_or_else(|| format!("'{address}' is no HOST:PORT"))?;
                (host.trim_matches(['[', ']']).to_owned(), port)
            }
        };
        let mut client = target.client().map_err(|error| format!("the {name} server: {error}"))?;
        let info = info(&mut client, "server").map_err(|reason| format!("the {name} server: {reason}"))?;
        let field = |field| info.field(field).map(str::to_owned);
        let (product, version) =
            match (field("dunlin_version"), field("valkey_version"), field("redis_version")) {
                (Some(version), _, _) => (Product::Dunlin, version),
                (_, Some(version), _) => (Product::Valkey, version),
                (_, _, version) => (Product::Redis, version.unwrap_or_default()),
            };
        let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Ok(Self { name, target, client, product, version, host, port })
    }

    /// Another connection to it.
    pub(super) fn another_client(&self) -> Result<Client, String> {
        self.target.client().map_err(|error| format!("the {} server: {error}", self.name))
    }

    pub(super) fn credentials(&self) -> Option<&Credentials> {
        self.target.credentials.as_ref()
    }

    /// Runs a command; an error says whose it is.
    pub(super) fn ask(&mut self, words: &[&str]) -> Result<Value, String> {
        ask(&mut self.client, words)
            .map_err(|reason| format!("the {} server: {}: {reason}", self.name, words[0]))
    }

    pub(super) fn info(&mut self, section: &str) -> Result<Info, String> {
        info(&mut self.client, section).map_err(|reason| format!("the {} server: {reason}", self.name))
    }

    /// The value of a directive, unless it is not there or not shown.
    pub(super) fn directive(&mut self, name: &str) -> Option<String> {
        strings(&self.ask(&["CONFIG", "GET", name]).ok()?).into_iter().nth(1)
    }

    /// The end of the stream at a primary; what a replica has applied of it.
    pub(super) fn offset(&mut self) -> Result<u64, String> {
        let info = self.info("replication")?;
        let is_replica = info.field("role") == Some("slave");
        let field = if is_replica { "slave_repl_offset" } else { "master_repl_offset" };
        Ok(info.number(field).unwrap_or(0.0) as u64)
    }

    /// Databases that have keys: number and keys.
    pub(super) fn databases(&mut self) -> Result<Vec<(u32, u64)>, String> {
        let info = self.info("keyspace")?;
        let keys = |number: u32| {
            let line = info.field(&format!("db{number}"))?;
            let count = line.split(',').find_map(|part| part.strip_prefix("keys="))?;
            Some((number, count.parse().ok()?))
        };
        Ok((0..DATABASES_MAX).filter_map(keys).filter(|(_, count)| *count > 0).collect())
    }

    pub(super) fn keys(&mut self) -> Result<u64, String> {
        Ok(self.databases()?.iter().map(|(_, keys)| keys).sum())
    }

    /// A line for the user.
    pub(super) fn description(&mut self) -> Result<String, String> {
        let bytes = self.info("memory")?.number("used_memory").unwrap_or(0.0);
        let (keys, role) = (self.keys()?, self.info("replication")?.field("role").map(str::to_owned));
        let role = if role.as_deref() == Some("slave") { "replica" } else { "primary" };
        let (major, minor) = self.version;
        Ok(format!(
            "{}  {} {major}.{minor}, {role}, {keys} keys, {:.1} MB",
            self.target.address,
            self.product,
            bytes / 1e6
        ))
    }

    /// Runs commands in a row; errors are among the replies.
    pub(super) fn pipelined(
        &mut self,
        commands: impl Iterator<Item = Vec<Vec<u8>>>,
    ) -> Result<Vec<Value>, String> {
        let (mut requests, mut count, mut replies) = (Vec::new(), 0, Vec::new());
        commands.for_each(|words| {
            encode(&words, &mut requests);
            count += 1;
        });
        let asked = self.client.pipeline(&requests, count, |reply| replies.push(reply));
        asked.map_err(|error| format!("the {} server: {error}", self.name))?;
        Ok(replies)
    }

    /// Whether it has a command.
    pub(super) fn knows(&mut self, command: &str) -> bool {
        let reply = self.ask(&["COMMAND", "INFO", command]);
        matches!(reply, Ok(Value::Array(rows)) if rows.iter().any(|row| matches!(row, Value::Array(row) if !row.is_empty())))
    }
}

/// More databases than any server has by default; those beyond are not looked for.
const DATABASES_MAX: u32 = 16_384;

fn info(client: &mut Client, section: &str) -> Result<Info, String> {
    match client.info(section) {
        Ok(Some(info)) => Ok(info),
        Ok(None) => match client.call(&["INFO", section]) {
            Ok(Value::Error(line)) => Err(text(&line)),
            _ => Err("it does not answer INFO".to_owned()),
        },
        Err(error) => Err(error.to_string()),
    }
}
