//! PostgreSQL as the SQL server: a schema of its own, one transaction a profile, and, as the servers beside
//! it, no waiting for the disk.

use std::error::Error as _;

use postgres::error::SqlState;
use postgres::{Client, Error, NoTls, Statement};

use super::store::{CounterStore, RecordStore};
use super::workload::Record;

/// Settings, as the report names them.
pub const SETTINGS: &str = "synchronous_commit=off, one transaction a profile, prepared statements";
/// All of it is made and dropped by the lab. The statements of a batch are one transaction.
const SCHEMA: &str = "CREATE SCHEMA dunlin_lab;
    CREATE TABLE dunlin_lab.record (page INTEGER PRIMARY KEY, text BYTEA NOT NULL);
    CREATE TABLE dunlin_lab.shared (page INTEGER, other INTEGER, fans BIGINT NOT NULL, PRIMARY KEY (page, other));";
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

/// An empty schema in somebody's database.
pub struct Postgres {
    schema: Schema,
    read: Statement,
    write: Statement,
    count: Statement,
    shared: Statement,
}

impl Schema {
    /// Refuses a database that has a schema of that name: it may be somebody's.
    fn new(url: &str) -> Result<Self, String> {
        let mut client = Client::connect(url, NoTls).map_err(text)?;
        client.batch_execute(SCHEMA).map_err(|error| match error.code() {
            Some(code) if *code == SqlState::DUPLICATE_SCHEMA => {
                "it has a schema dunlin_lab, and the lab drops the one that it makes: if a lab that was killed has \
                 left it there, DROP SCHEMA dunlin_lab CASCADE"
                    .into()
            }
            _ => text(error),
        })?;
        Ok(Self(client))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        // Where it fails, the next run says that the schema is there.
        let _ = self.0.batch_execute("ROLLBACK");
        let _ = self.0.batch_execute("DROP SCHEMA dunlin_lab CASCADE");
    }
}

impl Postgres {
    /// Makes the schema.
    pub fn new(url: &str) -> Result<Self, String> {
        let mut schema = Schema::new(url)?;
        let client = &mut schema.0;
        client.batch_execute("SET synchronous_commit = off").map_err(text)?;
        let mut prepared = |statement| client.prepare(statement).map_err(text);
        let (read, write, count) = (prepared(READ)?, prepared(WRITE)?, prepared(COUNT)?);
        let shared = prepared(SHARED)?;
        client.batch_execute("BEGIN").map_err(text)?;
        Ok(Self { schema, read, write, count, shared })
    }

    /// Its version.
    pub fn version(url: &str) -> Result<String, String> {
        let mut client = Client::connect(url, NoTls).map_err(text)?;
        let row = client.query_one("SHOW server_version", &[]).map_err(text)?;
        Ok(format!("PostgreSQL {}", row.get::<_, String>(0)))
    }
}

/// Whether a URL can be understood.
pub fn check_url(url: &str) -> Result<(), String> {
    url.parse::<postgres::Config>().map(|_| ()).map_err(text)
}

/// The server's own words where there are some.
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
