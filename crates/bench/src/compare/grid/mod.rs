//! `dunlin bench compare --memory`: bytes of a key of each shape, on servers side by side.
//!
//! ```text
//! cells (what is compared) ─→ measure (a fresh server for each) ─→ page (.json after each cell; .md, .svg)
//! ```
//!
//! Invariants: a server has at least the total that is asked for, so that its fixed cost is small. A page has figures
//! of one executable a column, and an interrupted run goes on where it ended.

mod cells;
mod page;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use dunlin_resp::Value;
use indicatif::ProgressBar;

use super::server::{Program, Server};
use crate::target::{Client, encode};
pub use cells::Kind;
use cells::{Cell, EXAMPLES, PANELS, look_up_keys};
use page::{Column, Figure, Memory, Page};

/// The least that the keys of a server take together: 90 MB are asked for, so that no server has less than 64.
const TOTAL_BYTES: u64 = 90 << 20;
const TOTAL_BYTES_MIN: u64 = 64 << 20;
const QUICK_TOTAL_BYTES: u64 = 12 << 20;
const QUICK_TOTAL_BYTES_MIN: u64 = 8 << 20;
/// A server that takes more gets no further keys.
const TOTAL_BYTES_MAX: u64 = 600 << 20;
/// Bytes of requests that are sent at once.
const BATCH_BYTES: usize = 4 << 20;
/// A server is at rest when its memory moves less than this fraction in [`REST`].
const REST_FRACTION: f64 = 0.0005;
const REST: Duration = Duration::from_millis(120);
const REST_MAX: Duration = Duration::from_secs(30);

/// The settings of a grid.
#[derive(Debug)]
pub struct Grid<'a> {
    /// The servers; the first is compared with the others.
    pub programs: Vec<Program>,
    /// Only these types; all when there is none.
    pub only: &'a [Kind],
    /// The small grid.
    pub quick: bool,
    /// Machine and flags, for the page.
    pub settings: Vec<String>,
    /// Processors that servers may use.
    pub processors: Vec<usize>,
}

impl Grid<'_> {
    /// Measures every cell that the page in `folder` lacks, and writes the page.
    pub fn run(mut self, folder: &Path, bar: &ProgressBar) -> Result<(), String> {
        let columns = self.programs.iter().map(column).collect::<Result<_, _>>()?;
        self.settings.push(format!("at least {} MB of keys in each server", self.total_bytes_min() >> 20));
        if self.quick {
            self.settings.push("the small grid".into());
        }
        let mut page = Page::resumed(folder, self.settings.clone(), columns);
        let has_field_expiry = self.programs.iter().map(|program| self.has_field_expiry(program));
        let has_field_expiry: Vec<bool> = has_field_expiry.collect::<Result<_, String>>()?;
        let examples = EXAMPLES.iter().filter(|_| !self.quick).map(|(_, cell)| *cell);
        let cells = examples.chain(PANELS.into_iter().flat_map(|panel| panel.cells(self.quick)));
        let is_wanted =
            |cell: &Cell| !cell.is_skipped() && (self.only.is_empty() || self.only.contains(&cell.kind));
        let mut wanted = Vec::new();
        for cell in cells.filter(is_wanted) {
            for (program, has_field_expiry) in self.programs.iter().zip(&has_field_expiry) {
                if (*has_field_expiry || !cell.needs_field_expiry())
                    && page.memory(cell, &program.name).is_none()
                {
                    wanted.push((cell, program));
                }
            }
        }
        bar.set_length(wanted.len() as u64);
        bar.set_position(0);
        for (cell, program) in wanted {
            bar.set_message(format!("{cell} on {}", program.name));
            let memory = self
                .measure(cell, program)
                .map_err(|error| format!("{cell} on {}: {error}", program.name))?;
            page.figures.push(Figure { cell, server: program.name.clone(), memory });
            page.write_figures(folder)?;
            bar.inc(1);
        }
        page.figures.sort_by_key(|figure| {
            let column = page.columns.iter().position(|column| column.name == figure.server);
            let panel = PANELS
                .iter()
                .position(|panel| (panel.kind, panel.expiry) == (figure.cell.kind, figure.cell.expiry));
            (panel, figure.cell.members, figure.cell.value_bytes, column)
        });
        page.write(folder, self.quick)
    }

    fn total_bytes_min(&self) -> u64 {
        if self.quick { QUICK_TOTAL_BYTES_MIN } else { TOTAL_BYTES_MIN }
    }

    fn has_field_expiry(&self, program: &Program) -> Result<bool, String> {
        let server = Server::start(program, &self.processors)?;
        let reply =
            server.client()?.call(&["COMMAND", "INFO", "HEXPIRE"]).map_err(|error| error.to_string())?;
        Ok(matches!(reply, Value::Array(commands) if matches!(commands.first(), Some(Value::Array(_)))))
    }

    /// Fills a fresh server with keys of a cell.
    fn measure(&self, cell: Cell, program: &Program) -> Result<Memory, String> {
        let server = Server::start(program, &self.processors)?;
        let mut filling = Filling { cell, client: server.client()?, batch: Vec::new(), replies: 0 };
        // The first key is a part of the fixed cost: it brings the parts of the process that all keys share.
        let first = Cell { members: 1, value_bytes: cell.value_bytes.min(16), ..cell };
        filling.add(first.make(u64::from(u32::MAX)))?;
        filling.send()?;
        let before = at_rest(&server)?;

        let planned = cell.keys(if self.quick { QUICK_TOTAL_BYTES } else { TOTAL_BYTES });
        let least = before.used_bytes + self.total_bytes_min() as f64;
        let most = before.used_bytes + TOTAL_BYTES_MAX as f64;
        let (mut keys, mut wanted) = (0, planned);
        while keys < wanted {
            filling.add(cell.make(keys))?;
            keys += 1;
            if keys < wanted && !filling.batch.is_empty() {
                continue;
            }
            filling.send()?;
            let used_bytes = used_bytes(&mut filling.client)?;
            if used_bytes > most {
                break;
            }
            if keys == wanted && used_bytes < least {
                wanted += planned.div_ceil(4);
            }
        }
        for number in 0..keys {
            filling.add(cell.look_up(number))?;
        }
        filling.add(look_up_keys(keys))?;
        filling.send()?;
        filling.check(keys)?;
        drop(filling);
        let after = at_rest(&server)?;
        Ok(Memory {
            keys,
            used_bytes: (after.used_bytes - before.used_bytes) / keys as f64,
            resident_bytes: (after.resident_bytes - before.resident_bytes) / keys as f64,
        })
    }
}

/// A connection that writes keys.
struct Filling {
    cell: Cell,
    client: Client,
    batch: Vec<u8>,
    replies: usize,
}

impl Filling {
    /// Adds requests, and sends each batch that is full. The last one to be added may leave an empty batch.
    fn add(&mut self, requests: impl Iterator<Item = Vec<Vec<u8>>>) -> Result<(), String> {
        for words in requests {
            encode(&words, &mut self.batch);
            self.replies += 1;
            if self.batch.len() >= BATCH_BYTES {
                self.send()?;
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), String> {
        let mut refusal = None;
        let take = |reply| {
            if let Value::Error(text) = reply {
                refusal = Some(String::from_utf8_lossy(&text).into_owned());
            }
        };
        let sent = self.client.pipeline(&self.batch, self.replies, take);
        self.batch.clear();
        self.replies = 0;
        sent.map_err(|error| error.to_string())?;
        refusal.map_or(Ok(()), Err)
    }

    /// Whether all keys are there, and the last one whole.
    fn check(&mut self, keys: u64) -> Result<(), String> {
        let mut expect = |words: &[String], expected: u64| match self.client.call(words) {
            Ok(Value::Integer(count)) if count as u64 == expected => Ok(()),
            Ok(other) => Err(format!("{} answered {other:?} instead of {expected}", words.join(" "))),
            Err(error) => Err(error.to_string()),
        };
        let (words, count) = self.cell.count(keys - 1);
        expect(&words, count)?;
        expect(&["DBSIZE".into()], keys + 1)
    }
}

/// The memory of a server, all in all.
#[derive(Debug, Clone, Copy)]
struct Total {
    used_bytes: f64,
    resident_bytes: f64,
}

/// Memory of a server that has returned to the system what it can, once it moves no longer.
fn at_rest(server: &Server) -> Result<Total, String> {
    let mut client = server.client()?;
    client.call(&["MEMORY", "PURGE"]).map_err(|error| error.to_string())?;
    let mut read = || {
        let used_bytes = used_bytes(&mut client)?;
        Ok::<_, String>(Total { used_bytes, resident_bytes: server.resident_bytes()? as f64 })
    };
    let (start, mut last) = (Instant::now(), read()?);
    loop {
        thread::sleep(REST);
        let total = read()?;
        let moves = |one: f64, other: f64| (one - other).abs() > other * REST_FRACTION;
        if !moves(total.used_bytes, last.used_bytes) && !moves(total.resident_bytes, last.resident_bytes) {
            return Ok(total);
        }
        if start.elapsed() > REST_MAX {
            return Err("the memory does not come to rest".into());
        }
        last = total;
    }
}

fn used_bytes(client: &mut Client) -> Result<f64, String> {
    let info = client.info("memory").map_err(|error| error.to_string())?;
    info.and_then(|info| info.number("used_memory")).ok_or_else(|| "INFO has no used_memory".to_string())
}

fn column(program: &Program) -> Result<Column, String> {
    let bytes = fs::read(&program.path)
        .map_err(|error| format!("cannot read {}: {error}", program.path.display()))?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok(Column {
        name: program.name.clone(),
        version: program.version(),
        executable: format!("{:016x}", hasher.finish()),
    })
}
