//! The functions of the cluster: the record has the text of each library.
//!
//! A primary makes its libraries those of the record, by commands that stand in its log: so its replicas, and its files, have
//! them in their place among the writes. A node that becomes a primary does the same with what the stream has brought.
//!
//! Client libraries send FUNCTION LOAD and its kin to all primaries, one after the other. A primary that has got a library by
//! the record answers the client that brings it, too, as if it were new, once; and the same with one that has gone.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_cluster::{meta::Revision, records::FunctionsRecord};
use dunlin_engine::{
    Worker,
    command::{Args, CommandError},
};

use crate::cluster::view::Stored;
use crate::{
    lua::{LibraryCache, LibraryChange, LoadedLibraries},
    session::order::Carried,
    shared::Shared,
    workers::drain::drain,
};

/// Names that are remembered at most, of those that came and of those that went.
const NAMES_MAX: usize = 4096;

/// The functions as this node has them.
#[derive(Debug, Default)]
pub(super) struct Functions {
    /// The revision that is in force. 0: the libraries are the node's own, or the stream's.
    revision: Revision,
    /// Libraries that other nodes' clients have brought, and no client here yet.
    came: BTreeSet<String>,
    /// Libraries that other nodes' clients have removed, and no client here yet.
    went: BTreeSet<String>,
}

type Libraries = BTreeMap<String, String>;

impl Functions {
    /// The node is not a primary: its libraries are those of the stream.
    pub(super) fn leave_to_the_stream(&mut self) {
        self.revision = 0;
    }

    /// The record after a change, whose words are those of a subcommand of FUNCTION.
    pub(super) fn plan(
        &mut self,
        shared: &Shared,
        known: Option<&Stored<FunctionsRecord>>,
        words: &[Vec<u8>],
    ) -> Result<(FunctionsRecord, Carried), CommandError> {
        if let Some((revision, record)) = known {
            // Changes that others have made meanwhile are theirs.
            self.put(shared, *revision, record, false)
                .map_err(|why| CommandError::owned(format!("ERR {why}")))?;
        }
        let libraries = match known {
            Some((_, record)) => record.libraries.clone(),
            None => texts(&shared.libraries)?,
        };
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        // Two words are its name.
        let change = LibraryChange::read(&mut Args::new(&words, 2))?;
        if let Some(carried) = self.is_done_by_others(&libraries, &change)? {
            return Ok((FunctionsRecord { libraries }, carried));
        }
        let draft = LibraryCache::new(1);
        let codes: Vec<Vec<u8>> = libraries.values().map(|code| code.clone().into_bytes()).collect();
        draft
            .replace_all(&shared.commands, &codes)
            .map_err(|why| CommandError::owned(format!("ERR in the cluster's functions, {why}")))?;
        let name = LoadedLibraries::default().apply(&draft, &shared.commands, &change, || ())?;
        let carried = name.map_or(Carried::Ok, Carried::Name);
        Ok((FunctionsRecord { libraries: texts(&draft)? }, carried))
    }

    /// Whether a client brings or removes what came or went by the record.
    fn is_done_by_others(
        &mut self,
        libraries: &Libraries,
        change: &LibraryChange<'_>,
    ) -> Result<Option<Carried>, CommandError> {
        if let LibraryChange::Delete { name } = change {
            let name = String::from_utf8_lossy(name);
            let went = !libraries.contains_key(&*name) && self.went.remove(&*name);
            return Ok(went.then_some(Carried::Ok));
        }
        let texts = change.texts()?;
        let name_of = |text: &Vec<u8>| {
            let mut entries = libraries.iter();
            entries.find(|(_, code)| code.as_bytes() == text).map(|(name, _)| name.clone())
        };
        let names: Option<Vec<String>> = texts.iter().map(name_of).collect();
        let Some(names) =
            names.filter(|names| !names.is_empty() && names.iter().all(|name| self.came.contains(name)))
        else {
            return Ok(None);
        };
        names.iter().for_each(|name| _ = self.came.remove(name));
        Ok(match change {
            LibraryChange::Load { .. } => {
                names.into_iter().next().map(|name| Carried::Name(name.into_bytes()))
            }
            // Others may be there that are to go.
            LibraryChange::Restore { .. } if names.len() == libraries.len() => Some(Carried::Ok),
            _ => None,
        })
    }

    /// Makes the libraries of this node, a primary, those of the record. `is_own`: a client of this node has wanted it. The error
    /// is the first library that does not load; the others are there.
    pub(super) fn put(
        &mut self,
        shared: &Shared,
        revision: Revision,
        record: &FunctionsRecord,
        is_own: bool,
    ) -> Result<(), String> {
        if revision <= self.revision {
            return Ok(());
        }
        let mut bench = Bench::new(shared);
        let (gone, mut due) = difference(&shared.libraries, &record.libraries);
        self.remember(&gone, &due, is_own);
        for name in &gone {
            bench.run(&[b"FUNCTION", b"DELETE", name.as_bytes()])?;
        }
        // A function may have changed its library: those that fail are tried again behind the others, and at last without the
        // old ones.
        let load = |bench: &mut Bench<'_>, name: &String| {
            bench.run(&[b"FUNCTION", b"LOAD", b"REPLACE", record.libraries[name].as_bytes()])
        };
        let mut removes_first = false;
        while !due.is_empty() {
            let before = due.len();
            let mut fault = None;
            due.retain(|name| load(&mut bench, name).map_err(|why| fault = Some(why)).is_err());
            if due.len() < before {
                continue;
            }
            if std::mem::replace(&mut removes_first, true) {
                return Err(fault.unwrap_or_default());
            }
            for name in due.iter().filter(|name| shared.libraries.contains(name.as_bytes())) {
                bench.run(&[b"FUNCTION", b"DELETE", name.as_bytes()])?;
            }
        }
        self.revision = revision;
        Ok(())
    }

    fn remember(&mut self, gone: &[String], due: &[String], is_own: bool) {
        let (left, came) = (&mut self.went, &mut self.came);
        gone.iter().for_each(|name| _ = came.remove(name));
        due.iter().for_each(|name| _ = left.remove(name));
        if is_own {
            gone.iter().for_each(|name| _ = left.remove(name));
            due.iter().for_each(|name| _ = came.remove(name));
            return;
        }
        left.extend(gone.iter().cloned());
        came.extend(due.iter().cloned());
        for names in [left, came] {
            while names.len() > NAMES_MAX {
                names.pop_first();
            }
        }
    }
}

/// The texts of libraries, by name.
fn texts(libraries: &LibraryCache) -> Result<Libraries, CommandError> {
    const NO_TEXT: CommandError = CommandError::text("ERR the text of a cluster's library has to be UTF-8");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| NO_TEXT);
    libraries.now().iter().map(|library| Ok((text(&library.name)?, text(&library.code)?))).collect()
}

/// The libraries that are here and not wanted, and those that are wanted and not here, or not with that text.
fn difference(libraries: &LibraryCache, wanted: &Libraries) -> (Vec<String>, Vec<String>) {
    let now = libraries.now();
    let mut due: BTreeMap<&str, &str> =
        wanted.iter().map(|(name, code)| (name.as_str(), code.as_str())).collect();
    let mut gone = Vec::new();
    for library in now.iter() {
        // Names are letters, digits and underscores.
        let name = String::from_utf8_lossy(&library.name);
        match wanted.get(&*name) {
            None => gone.push(name.into_owned()),
            Some(code) if code.as_bytes() == library.code => _ = due.remove(&*name),
            Some(_) => {}
        }
    }
    (gone, due.into_keys().map(str::to_owned).collect())
}

/// Runs changes of libraries as a client of this node would run them, and records them.
struct Bench<'a> {
    shared: &'a Shared,
    worker: Worker,
    loaded: LoadedLibraries,
}

impl<'a> Bench<'a> {
    fn new(shared: &'a Shared) -> Self {
        let mut worker = Worker::new(shared.agent(), 0);
        worker.statistics = std::sync::Arc::clone(&shared.stats.keyspace[shared.workers]);
        Self { shared, worker, loaded: LoadedLibraries::default() }
    }

    fn run(&mut self, words: &[&[u8]]) -> Result<(), String> {
        let failed = |reason: &[u8]| format!("functions of the cluster: {}", String::from_utf8_lossy(reason));
        let change = LibraryChange::read(&mut Args::new(words, 2)).map_err(|error| failed(&error.line()))?;
        let (shared, worker) = (self.shared, &mut self.worker);
        let Some(inside) = shared.engine.keyspace.enter_unless_long(worker.id()) else {
            return Err("functions of the cluster: a script holds the keyspace".to_owned());
        };
        let record = || shared.engine.record(0, worker, words);
        let applied = self.loaded.apply(&shared.libraries, &shared.commands, &change, record);
        drop(inside);
        if let Some(queues) = shared.durability.queues() {
            drain(&mut self.worker, &shared.maintenance, queues);
        }
        applied.map(drop).map_err(|error| failed(&error.line()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn libraries(texts: &[(&str, &str)]) -> Libraries {
        texts.iter().map(|(name, code)| ((*name).to_owned(), (*code).to_owned())).collect()
    }

    #[test]
    fn functions_that_came_by_the_record_are_answered_once_to_a_client() {
        let mut functions = Functions::default();
        let there = libraries(&[("one", "#!lua name=one\n…")]);
        functions.remember(&["two".to_owned()], &["one".to_owned()], false);
        let load = LibraryChange::Load { code: there["one"].as_bytes(), replace: false };
        let other = LibraryChange::Load { code: b"#!lua name=one\nother", replace: false };
        let delete = LibraryChange::Delete { name: b"two" };
        let mut ask = |change| functions.is_done_by_others(&there, change).unwrap();
        assert_eq!(ask(&other), None, "another text is another library");
        assert_eq!(ask(&load), Some(Carried::Name(b"one".to_vec())));
        assert_eq!(ask(&load), None);
        assert_eq!(ask(&delete), Some(Carried::Ok));
        assert_eq!(ask(&delete), None);
    }

    #[test]
    fn functions_that_a_client_here_has_brought_are_not_remembered() {
        let mut functions = Functions::default();
        let there = libraries(&[("one", "#!lua name=one\n…")]);
        functions.remember(&[], &["one".to_owned()], true);
        let load = LibraryChange::Load { code: there["one"].as_bytes(), replace: false };
        assert_eq!(functions.is_done_by_others(&there, &load).unwrap(), None);
    }
}
