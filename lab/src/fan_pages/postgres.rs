//! PostgreSQL as the SQL server: a schema of its own, one transaction a profile, and, as the servers beside
//! it, no waiting for the disk.

use std::error::Error as _;

use postgres::config::SslMode;
use postgres::error::SqlState;
use postgres::{Client, Config, Error, NoTls, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::store::{CounterStore, RecordStore};
use super::workload::Record;
use dunlin_bench::tls::TlsOptions;
use dunlin_bench::uri::percent_decoded;

/// Settings, as the report names them.
pub const SETTINGS: &str = "synchronous_commit=off, one transaction a profile, prepared statements";
/// All of it is made and dropped by the lab, which knows it again by the comment. The statements of a batch
/// are one transaction.
const SCHEMA: &str = "CREATE SCHEMA dunlin_lab;
    COMMENT ON SCHEMA dunlin_lab IS 'made by dunlin-lab, which will drop it';
    CREATE TABLE dunlin_lab.record (page INTEGER PRIMARY KEY, text BYTEA NOT NULL);
    CREATE TABLE dunlin_lab.shared (page INTEGER, other INTEGER, fans BIGINT NOT NULL, PRIMARY KEY (page, other));";
/// Whether a schema of that name is there: whether it has the comment, and nothing in it but the lab's tables.
const FOUND: &str = "SELECT coalesce(obj_description(oid, 'pg_namespace')
        = 'made by dunlin-lab, which will drop it', false)
    AND NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = pg_namespace.oid AND relkind <> 'i'
        AND relname NOT IN ('record', 'shared'))
    FROM pg_namespace WHERE nspname = 'dunlin_lab'";
/// Held as long as the schema is there; the server releases it when a lab is killed, but may need a moment to
/// see that. The number stands for nothing else.
const LOCK: &str = "SET lock_timeout = '5s'; SELECT pg_advisory_lock(7308895)";
const UNLOCK: &str = "RESET lock_timeout; SELECT pg_advisory_unlock(7308895)";
const READ: &str = "SELECT text FROM dunlin_lab.record WHERE page = $1";
const WRITE: &str = "INSERT INTO dunlin_lab.record (page, text) VALUES ($1, $2)
    ON CONFLICT (page) DO UPDATE SET text = EXCLUDED.text";
/// Every pair of the profile's pages in one statement.
const COUNT: &str = "INSERT INTO dunlin_lab.shared (page, other, fans)
    SELECT page, other, 1 FROM unnest($1::INTEGER[]) AS page, unnest($1::INTEGER[]) AS other
    ON CONFLICT (page, other) DO UPDATE SET fans = shared.fans + 1";
const SHARED: &str = "SELECT other, fans FROM dunlin_lab.shared WHERE page = $1";

/// The lab's schema; dropped with its owner.
struct Schema(Client);

/// An empty schema in a user's database.
pub struct Postgres {
    schema: Schema,
    read: Statement,
    write: Statement,
    count: Statement,
    shared: Statement,
}

impl Schema {
    /// Refuses a database that has a schema of that name: it may belong to a user, or to another lab.
    fn new(url: &str) -> Result<Self, String> {
        let mut client = connect(url)?;
        lock(&mut client)?;
        if client.query_opt(FOUND, &[]).map_err(text)?.is_some() {
            return Err("it has a schema dunlin_lab, and the lab drops the one that it makes".into());
        }
        client.batch_execute(SCHEMA).map_err(text)?;
        Ok(Self(client))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        // If this fails, the next run finds the schema.
        let _ = self.0.batch_execute("ROLLBACK");
        let _ = self.0.batch_execute("DROP SCHEMA dunlin_lab CASCADE");
        let _ = self.0.batch_execute(UNLOCK);
    }
}

impl Postgres {
    /// Makes the schema.
    pub fn new(url: &str) -> Result<Self, String> {
        let mut schema = Schema::new(url)?;
        let client = &mut schema.0;
        client.batch_execute("RESET lock_timeout; SET synchronous_commit = off").map_err(text)?;
        let mut prepared = |statement| client.prepare(statement).map_err(text);
        let (read, write, count) = (prepared(READ)?, prepared(WRITE)?, prepared(COUNT)?);
        let shared = prepared(SHARED)?;
        client.batch_execute("BEGIN").map_err(text)?;
        Ok(Self { schema, read, write, count, shared })
    }

    /// Drops the schema that a killed lab has left; returns whether there was one.
    pub fn sweep(url: &str) -> Result<bool, String> {
        let mut client = connect(url)?;
        lock(&mut client)?;
        let found = client.query_opt(FOUND, &[]).map_err(text)?;
        let is_ours = found.is_some_and(|row| row.get(0));
        if is_ours {
            client.batch_execute("DROP SCHEMA dunlin_lab CASCADE").map_err(text)?;
        }
        client.batch_execute(UNLOCK).map_err(text)?;
        Ok(is_ours)
    }

    /// Its version.
    pub fn version(url: &str) -> Result<String, String> {
        let mut client = connect(url)?;
        let row = client.query_one("SHOW server_version", &[]).map_err(text)?;
        Ok(format!("PostgreSQL {}", row.get::<_, String>(0)))
    }
}

/// Whether a URL can be understood, and its certificates be read.
pub fn check_url(url: &str) -> Result<(), String> {
    Place::parse(url).map(drop)
}

/// The parts of a URL.
struct Place {
    config: Config,
    /// Nothing for a connection that is not encrypted.
    tls: Option<MakeRustlsConnect>,
}

impl Place {
    /// Reads `postgres://…?sslmode=…&sslrootcert=…&sslcert=…&sslkey=…`. The last three are unknown to the
    /// library, and so is `verify-full`; as with libpq, `require` trusts any server unless there is an
    /// `sslrootcert`. Without `sslmode` nothing is encrypted.
    fn parse(url: &str) -> Result<Self, String> {
        let (place, options) = url.split_once('?').unwrap_or((url, ""));
        let (mut kept, mut mode, mut tls) = (Vec::new(), "disable", TlsOptions::default());
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let file = |path| percent_decoded(path).map(Into::into).ok_or("bad percent-encoding");
            match option.split_once('=') {
                Some(("sslmode", value)) => mode = value,
                Some(("sslrootcert", path)) => tls.cacert = Some(file(path)?),
                Some(("sslcert", path)) => tls.cert = Some(file(path)?),
                Some(("sslkey", path)) => tls.key = Some(file(path)?),
                _ => kept.push(option),
            }
        }
        let place = if kept.is_empty() { place.into() } else { format!("{place}?{}", kept.join("&")) };
        let mut config: Config = place.parse().map_err(text)?;
        let tls = match mode {
            "disable" => None,
            "require" | "verify-full" => {
                tls.insecure = mode == "require" && tls.cacert.is_none();
                Some(MakeRustlsConnect::new(tls.client_config()?))
            }
            other => return Err(format!("sslmode={other} is not disable, require or verify-full")),
        };
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        Ok(Self { config, tls })
    }
}

/// Waits, though not for long, until no other lab is at work in the database.
fn lock(client: &mut Client) -> Result<(), String> {
    client.batch_execute(LOCK).map_err(|error| match error.code() {
        Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE => "another lab is at work in it".into(),
        _ => text(error),
    })
}

fn connect(url: &str) -> Result<Client, String> {
    let Place { config, tls } = Place::parse(url)?;
    match tls {
        Some(tls) => config.connect(tls),
        None => config.connect(NoTls),
    }
    .map_err(text)
}

/// The server's own words if there are some.
fn text(error: Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(said), _) => said.message().to_string(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

/// PostgreSQL has no unsigned integers; pages are few.
fn number(page: u32) -> i32 {
    i32::try_from(page).expect("pages are fewer than 2³¹")
}

impl RecordStore for Postgres {
    fn read(&mut self, page: u32) -> Result<Option<Vec<u8>>, String> {
        let row = self.schema.0.query_opt(&self.read, &[&number(page)]).map_err(text)?;
        Ok(row.map(|row| row.get(0)))
    }

    fn write(&mut self, page: u32, record: &[u8]) -> Result<(), String> {
        self.schema.0.execute(&self.write, &[&number(page), &record]).map(|_| ()).map_err(text)
    }

    fn commit(&mut self) -> Result<(), String> {
        self.schema.0.batch_execute("COMMIT; BEGIN").map_err(text)
    }
}

impl CounterStore for Postgres {
    fn count(&mut self, pages: &[u32]) -> Result<(), String> {
        let pages: Vec<i32> = pages.iter().copied().map(number).collect();
        self.schema.0.execute(&self.count, &[&pages]).map_err(text)?;
        self.commit()
    }

    fn record(&mut self, page: u32) -> Result<Record, String> {
        let mut record = Record::default();
        for row in self.schema.0.query(&self.shared, &[&number(page)]).map_err(text)? {
            let (other, fans) = (row.get::<_, i32>(0) as u32, row.get::<_, i64>(1) as u64);
            if other == page {
                record.fans = fans;
            } else {
                record.shared.insert(other, fans);
            }
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_whether_and_whom_to_trust() {
        let mode = |url: &str| Place::parse(url).map(|place| place.config.get_ssl_mode());
        let url = "postgres://ann@db/fans";
        assert_eq!(mode(url), Ok(SslMode::Disable));
        assert_eq!(mode(&format!("{url}?connect_timeout=5&sslmode=disable")), Ok(SslMode::Disable));
        assert_eq!(mode(&format!("{url}?sslmode=require&connect_timeout=5")), Ok(SslMode::Require));
        let refused = |options: &str| check_url(&format!("{url}?{options}")).unwrap_err();
        assert!(refused("sslmode=verify-full&sslrootcert=/no/such.pem").contains("/no/such.pem"));
        assert!(refused("sslmode=require&sslcert=/no/such.pem").contains("needs its key"));
        assert_eq!(refused("sslmode=verify-ca"), "sslmode=verify-ca is not disable, require or verify-full");
        assert!(refused("color=red").contains("color"));
    }
}
