//! SQLite as the embedded SQL store: a file in a scratch folder, one transaction a profile, and, as the
//! servers beside it, without waiting for the disk.

use rusqlite::{Connection, OptionalExtension, params};

use super::store::{CounterStore, RecordStore};
use super::workload::Record;
use dunlin_bench::process::ScratchFolder;

/// Settings, as the report names them.
pub const SETTINGS: &str = "journal_mode=WAL, synchronous=OFF, one transaction a profile";
const SCHEMA: &str = "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;
    CREATE TABLE record (page INTEGER PRIMARY KEY, text BLOB NOT NULL);
    CREATE TABLE shared (page INTEGER, other INTEGER, fans INTEGER NOT NULL, PRIMARY KEY (page, other))
        WITHOUT ROWID;";

/// A database of its own.
pub struct Sqlite {
    connection: Connection,
    _folder: ScratchFolder,
}

impl Sqlite {
    /// An empty database.
    pub fn new() -> Result<Self, String> {
        let folder = ScratchFolder::new()?;
        let connection = Connection::open(folder.path().join("fans.db")).map_err(text)?;
        connection.execute_batch(SCHEMA).map_err(text)?;
        connection.execute_batch("BEGIN").map_err(text)?;
        Ok(Self { connection, _folder: folder })
    }

    /// Its version.
    pub fn version() -> String {
        format!("SQLite {}", rusqlite::version())
    }
}

fn text(error: rusqlite::Error) -> String {
    error.to_string()
}

impl RecordStore for Sqlite {
    fn read(&mut self, page: u32) -> Result<Option<Vec<u8>>, String> {
        let mut query =
            self.connection.prepare_cached("SELECT text FROM record WHERE page = ?").map_err(text)?;
        query.query_row([page], |row| row.get(0)).optional().map_err(text)
    }

    fn write(&mut self, page: u32, record: &[u8]) -> Result<(), String> {
        let mut statement = self
            .connection
            .prepare_cached("INSERT OR REPLACE INTO record (page, text) VALUES (?, ?)")
            .map_err(text)?;
        statement.execute(params![page, record]).map(|_| ()).map_err(text)
    }

    fn commit(&mut self) -> Result<(), String> {
        self.connection.execute_batch("COMMIT; BEGIN").map_err(text)
    }
}

impl CounterStore for Sqlite {
    fn count(&mut self, pages: &[u32]) -> Result<(), String> {
        {
            let mut statement = self
                .connection
                .prepare_cached(
                    "INSERT INTO shared (page, other, fans) VALUES (?, ?, 1) \
                     ON CONFLICT (page, other) DO UPDATE SET fans = fans + 1",
                )
                .map_err(text)?;
            for page in pages {
                for other in pages {
                    statement.execute([page, other]).map_err(text)?;
                }
            }
        }
        self.commit()
    }

    fn record(&mut self, page: u32) -> Result<Record, String> {
        let mut query =
            self.connection.prepare_cached("SELECT other, fans FROM shared WHERE page = ?").map_err(text)?;
        let rows = query
            .query_map([page], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, i64>(1)?)))
            .map_err(text)?;
        let mut record = Record::default();
        for row in rows {
            let (other, fans) = row.map_err(text)?;
            if other == page {
                record.fans = fans as u64;
            } else {
                record.shared.insert(other, fans as u64);
            }
        }
        Ok(record)
    }
}
