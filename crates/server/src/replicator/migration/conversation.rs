//! The conversation with the target of a MIGRATE: one connection, requests in a row, then their replies.

use std::{io, time::Duration};

use dunlin_engine::Worker;
use dunlin_net::Now;
use dunlin_resp::SharedSlice;

use crate::{
    replication::connection::Connection,
    shared::Shared,
    workers::migration::{Credentials, Migration},
};

/// Bytes that are gathered before they are sent.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// A conversation that could not be ended.
pub(super) struct Broken {
    pub(super) error: io::Error,
    pub(super) while_writing: bool,
    /// The target has answered a key.
    pub(super) has_begun: bool,
    /// The first error line of the target before that.
    pub(super) refusal: Option<Vec<u8>>,
}

/// Requests on their way to the socket.
struct Requests<'a> {
    connection: &'a mut Connection,
    gathered: Vec<u8>,
    timeout: Duration,
}

impl Requests<'_> {
    fn head(&mut self, words: usize) {
        self.gathered.extend_from_slice(format!("*{words}\r\n").as_bytes());
    }

    fn word(&mut self, word: &[u8]) {
        self.length(word.len());
        self.gathered.extend_from_slice(word);
        self.gathered.extend_from_slice(b"\r\n");
    }

    fn length(&mut self, length: usize) {
        self.gathered.extend_from_slice(format!("${length}\r\n").as_bytes());
    }

    /// A word in pieces; long ones are not copied.
    fn pieces(&mut self, pieces: &[SharedSlice]) -> io::Result<()> {
        self.length(pieces.iter().map(|piece| piece.len()).sum());
        for piece in pieces {
            if self.gathered.len() + piece.len() > GATHERED_BYTES_MAX {
                self.send()?;
            }
            if piece.len() > GATHERED_BYTES_MAX {
                self.connection.write_all(piece, self.timeout)?;
            } else {
                self.gathered.extend_from_slice(piece);
            }
        }
        self.gathered.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        self.connection.write_all(&gathered, self.timeout)?;
        self.gathered = gathered;
        self.gathered.clear();
        Ok(())
    }
}

/// The replies that are owed.
struct Owed {
    auth: bool,
    select: bool,
    removals: usize,
    /// The keys that were sent; those whose time has come are not.
    keys: Vec<usize>,
}

/// Sends the keys of a migration and reads what becomes of them: `arrived`, and the target's first error line.
pub(super) fn send(
    shared: &Shared,
    connection: &mut Connection,
    migration: &Migration,
    worker: &mut Worker,
    arrived: &mut [bool],
) -> Result<Option<Vec<u8>>, Broken> {
    let broken = |error, while_writing| Broken { error, while_writing, has_begun: false, refusal: None };
    let owed = write_requests(shared, connection, migration, worker).map_err(|error| broken(error, true))?;
    let (timeout, database) = (migration.target.timeout, migration.target.database);
    // Until all is well, it is not known.
    connection.database = None;
    let mut error_line = None;
    for is_owed in [owed.auth, owed.select] {
        if is_owed {
            let line = connection.line(timeout).map_err(|error| broken(error, false))?;
            error_line = error_line.or_else(|| line.strip_prefix(b"-").map(<[u8]>::to_vec));
        }
    }
    let is_refused = error_line.is_some();
    // An error in front of the first key's reply is reported with that.
    let mut refusal = None;
    let replies = std::iter::repeat_n(None, owed.removals).chain(owed.keys.iter().copied().map(Some));
    for (count, key) in replies.enumerate() {
        let line = connection.line(timeout).map_err(|error| Broken {
            error,
            while_writing: false,
            has_begun: count > 0,
            refusal: refusal.clone(),
        })?;
        match line.strip_prefix(b"-") {
            None if !is_refused => key.into_iter().for_each(|key| arrived[key] = true),
            own => {
                refusal.get_or_insert_with(|| {
                    error_line.take().unwrap_or_else(|| own.unwrap_or_default().to_vec())
                });
            }
        }
    }
    if refusal.is_none() && !is_refused {
        connection.database = Some(database);
    }
    Ok(refusal)
}

fn write_requests(
    shared: &Shared,
    connection: &mut Connection,
    migration: &Migration,
    worker: &mut Worker,
) -> io::Result<Owed> {
    let target = &migration.target;
    let select = connection.database != Some(target.database);
    let mut requests = Requests { connection, gathered: Vec::new(), timeout: target.timeout };
    if let Some(Credentials { user, password }) = &target.credentials {
        requests.head(2 + usize::from(user.is_some()));
        requests.word(b"AUTH");
        user.iter().for_each(|user| requests.word(user));
        requests.word(password);
    }
    if select {
        requests.head(2);
        requests.word(b"SELECT");
        requests.word(target.database.to_string().as_bytes());
    }
    for key in &migration.gone {
        requests.head(2);
        requests.word(b"DEL");
        requests.word(key);
    }
    let mut keys = Vec::new();
    for (nth, key) in migration.migrating.iter().flat_map(|migrating| migrating.keys().iter().enumerate()) {
        let now_ms = Now::read().unix_ms;
        let dumped = migration.migrating.as_ref();
        let dumped = dumped.and_then(|migrating| migrating.dump(nth, &shared.engine, worker, now_ms));
        let Some(dumped) = dumped else { continue };
        keys.push(nth);
        requests.head(4 + usize::from(target.replace));
        requests.word(b"RESTORE");
        requests.word(key);
        requests.word(dumped.ttl_ms.to_string().as_bytes());
        requests.pieces(&dumped.payload)?;
        if target.replace {
            requests.word(b"REPLACE");
        }
    }
    requests.send()?;
    Ok(Owed { auth: target.credentials.is_some(), select, removals: migration.gone.len(), keys })
}
