//! The libraries of functions that clients have loaded, for all workers.
//!
//! ```text
//! FUNCTION LOAD ─▶ change: check, replace in place, journal ─▶ version + 1
//! FCALL         ─▶ a worker whose version is older reads the journal: which of its libraries are gone
//! ```
//!
//! A change costs as much as it changes, however many libraries there are. Only while a reader looks at all of them
//! (a snapshot, FUNCTION LIST) does the first change copy the table.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use dunlin_engine::{
    command::{CommandError, CommandResult},
    rdb::{Output, Version, seal_dump},
};
use dunlin_scripting::{Function, ScriptFlags};

use super::{heaps::HeapFigures, library::FUNCTION};

/// Removals that are remembered: a worker that has missed more looks through all that it has loaded.
const JOURNAL_MAX: usize = 1024;

/// A library.
#[derive(Debug)]
pub(crate) struct Library {
    /// No other library of this process has it, or had it.
    id: u64,
    pub(crate) name: Vec<u8>,
    /// The text as it came.
    pub(crate) code: Vec<u8>,
    pub(crate) functions: Vec<Function>,
    /// Whether each function keeps to the keys that a call declares.
    pub(crate) keeps_to_declared: Vec<bool>,
}

impl Library {
    pub(crate) fn new(
        name: Vec<u8>,
        code: &[u8],
        functions: Vec<Function>,
        keeps_to_declared: Vec<bool>,
    ) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        Self { id, name, code: code.to_vec(), functions, keeps_to_declared }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

/// A function that can be called.
#[derive(Debug, Clone)]
pub(crate) struct Callable {
    pub(crate) library: Arc<Library>,
    place: usize,
}

impl Callable {
    pub(crate) fn function(&self) -> &Function {
        &self.library.functions[self.place]
    }

    pub(crate) fn keeps_to_declared(&self) -> bool {
        self.library.keeps_to_declared[self.place]
    }
}

/// All libraries at one moment.
#[derive(Debug, Default, Clone)]
pub(crate) struct Libraries {
    by_name: BTreeMap<Vec<u8>, Arc<Library>>,
    /// By name in lower case.
    functions: HashMap<Vec<u8>, Callable>,
}

impl Libraries {
    /// The libraries, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn functions(&self) -> usize {
        self.functions.len()
    }

    /// Bytes of the texts.
    pub(crate) fn bytes(&self) -> usize {
        self.iter().map(|library| library.code.len() + size_of::<Library>()).sum()
    }

    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        self.by_name.contains_key(name)
    }

    /// Whether a change leaves each function with one library.
    fn check(&self, change: &Change) -> CommandResult {
        let mut names = HashSet::new();
        for function in change.added.iter().flat_map(|library| &library.functions) {
            let key = function.name.to_ascii_lowercase();
            let other = self.functions.get(&key).filter(|other| !change.removes(&other.library.name));
            if other.is_some() || !names.insert(key) {
                let name = String::from_utf8_lossy(&function.name);
                return Err(CommandError::owned(format!("ERR Function {name} already exists")));
            }
        }
        Ok(())
    }

    fn remove(&mut self, name: &[u8]) -> Option<Arc<Library>> {
        let library = self.by_name.remove(name)?;
        for function in &library.functions {
            self.functions.remove(&function.name.to_ascii_lowercase());
        }
        Some(library)
    }

    fn insert(&mut self, library: Arc<Library>) {
        for (place, function) in library.functions.iter().enumerate() {
            let callable = Callable { library: Arc::clone(&library), place };
            self.functions.insert(function.name.to_ascii_lowercase(), callable);
        }
        self.by_name.insert(library.name.clone(), library);
    }
}

/// A change of the libraries.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// Whether all go that are there.
    pub(crate) empties: bool,
    pub(crate) added: Vec<Arc<Library>>,
    /// Libraries that go, if not all do: by name, each there or not.
    pub(crate) removed: HashSet<Vec<u8>>,
}

impl Change {
    fn removes(&self, name: &[u8]) -> bool {
        self.empties || self.removed.contains(name)
    }
}

/// The state that a lock guards.
#[derive(Debug, Default)]
struct State {
    libraries: Arc<Libraries>,
    /// The libraries that were removed last, by number.
    journal: VecDeque<u64>,
    /// How many were removed ever.
    removals: u64,
}

impl State {
    fn apply(&mut self, change: Change) {
        if change.empties {
            let former = std::mem::take(&mut self.libraries);
            former.iter().for_each(|library| self.note_removal(library));
        }
        // A copy is made while a reader has the libraries.
        let libraries = Arc::make_mut(&mut self.libraries);
        let removed: Vec<_> = change.removed.iter().filter_map(|name| libraries.remove(name)).collect();
        change.added.into_iter().for_each(|library| libraries.insert(library));
        removed.iter().for_each(|library| self.note_removal(library));
    }

    fn note_removal(&mut self, library: &Library) {
        self.removals += 1;
        if self.journal.len() == JOURNAL_MAX {
            self.journal.pop_front();
        }
        self.journal.push_back(library.id);
    }
}

/// The changes that a worker has missed.
pub(crate) struct Missed {
    /// The version that it knows now.
    pub(crate) version: u64,
    /// How many libraries were removed ever.
    pub(crate) removals: u64,
    /// The numbers of those that were removed since it last looked; `None` if it has to look for itself.
    pub(crate) removed: Option<Vec<u64>>,
}

/// The libraries of all workers.
#[derive(Debug)]
pub(crate) struct LibraryCache {
    state: RwLock<State>,
    /// How often they have changed; raised under the lock.
    version: AtomicU64,
    /// Of each worker's machine.
    pub(crate) heaps: HeapFigures,
}

impl LibraryCache {
    pub(crate) fn new(workers: usize) -> Self {
        Self { state: RwLock::default(), version: AtomicU64::new(0), heaps: HeapFigures::new(workers) }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them now, for as short a time as possible: a change meanwhile copies them.
    pub(crate) fn now(&self) -> Arc<Libraries> {
        Arc::clone(&self.read().libraries)
    }

    /// Whether there is a library of that name.
    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        self.read().libraries.contains(name)
    }

    /// The function of that name, which is in lower case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Callable> {
        self.read().libraries.functions.get(name).cloned()
    }

    /// The flags of the function of that name, in any letter case.
    pub(crate) fn flags_of(&self, name: &[u8]) -> Option<ScriptFlags> {
        self.find(&name.to_ascii_lowercase()).map(|callable| callable.function().flags)
    }

    /// Whether a library is still the one of its name.
    pub(crate) fn is_current(&self, library: &Library) -> bool {
        let state = self.read();
        state.libraries.by_name.get(&library.name).is_some_and(|current| current.id == library.id)
    }

    /// The changes since a version, at which `removals` libraries had been removed; `None` if there are none.
    #[inline]
    pub(crate) fn missed(&self, version: u64, removals: u64) -> Option<Missed> {
        if self.version.load(Ordering::Acquire) == version {
            return None;
        }
        let state = self.read();
        let missed = state.removals.saturating_sub(removals) as usize;
        let first = state.journal.len().checked_sub(missed);
        Some(Missed {
            version: self.version.load(Ordering::Relaxed),
            removals: state.removals,
            removed: first.map(|first| state.journal.range(first..).copied().collect()),
        })
    }

    /// Takes all out.
    pub(crate) fn flush(&self) {
        let change = |_: &Libraries| Ok(Change { empties: true, ..Change::default() });
        let emptied = self.change(|| (), change);
        debug_assert!(emptied.is_ok(), "there is nothing to refuse");
    }

    /// All libraries as FUNCTION RESTORE takes them: as they stand in an RDB file, with a footer.
    pub(crate) fn dump(&self) -> Vec<u8> {
        let mut dump = Vec::new();
        let mut output = Output::new(&mut dump, None);
        for library in self.now().iter() {
            // Writing to a vector cannot fail.
            let _ = output.byte(FUNCTION);
            let _ = output.string(&library.code);
        }
        seal_dump(&mut dump, Version::Redis(10));
        dump
    }

    /// Makes the change that `plan` finds, and records it, in the order in which others see it. Nothing is changed if
    /// that fails, or would leave two libraries with one function. O(what changes).
    pub(crate) fn change(
        &self,
        record: impl FnOnce(),
        plan: impl FnOnce(&Libraries) -> Result<Change, CommandError>,
    ) -> CommandResult {
        let mut state = self.write();
        let change = plan(&state.libraries)?;
        state.libraries.check(&change)?;
        state.apply(change);
        self.version.fetch_add(1, Ordering::Release);
        if state.libraries.len() == 0 {
            self.heaps.forget_limited();
        }
        record();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{commands, lua::LibraryChange, lua::LoadedLibraries, lua::RestorePolicy};

    fn text(name: usize, function: &str) -> Vec<u8> {
        let code =
            format!("#!lua name=l{name}\nredis.register_function('{function}', function() return 1 end)");
        code.into_bytes()
    }

    fn load(
        cache: &LibraryCache,
        worker: &mut LoadedLibraries,
        name: usize,
        function: &str,
    ) -> Result<(), String> {
        let code = text(name, function);
        let change = LibraryChange::Load { code: &code, replace: true };
        let loaded = worker.apply(cache, &commands::table(), &change, || ());
        loaded.map(drop).map_err(|error| error.to_string())
    }

    fn delete(cache: &LibraryCache, worker: &mut LoadedLibraries, name: usize) {
        let name = format!("l{name}").into_bytes();
        worker.apply(cache, &commands::table(), &LibraryChange::Delete { name: &name }, || ()).unwrap();
    }

    fn functions(cache: &LibraryCache) -> Vec<String> {
        let mut names: Vec<String> =
            cache.now().functions.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn library_change_is_made_in_place_unless_it_is_shared() {
        let (cache, mut worker) = (LibraryCache::new(1), LoadedLibraries::default());
        load(&cache, &mut worker, 0, "f0").unwrap();
        let place = Arc::as_ptr(&cache.now());
        (1..50).for_each(|name| load(&cache, &mut worker, name, &format!("f{name}")).unwrap());
        delete(&cache, &mut worker, 7);
        assert_eq!(Arc::as_ptr(&cache.now()), place);

        let seen = cache.now();
        delete(&cache, &mut worker, 8);
        assert_eq!((seen.len(), cache.now().len()), (49, 48), "a snapshot does not change");
    }

    #[test]
    fn function_belongs_to_one_library() {
        let (cache, mut worker) = (LibraryCache::new(1), LoadedLibraries::default());
        load(&cache, &mut worker, 1, "f").unwrap();
        assert_eq!(load(&cache, &mut worker, 2, "F").unwrap_err(), "ERR Function F already exists");
        assert_eq!(functions(&cache), ["f"]);
        load(&cache, &mut worker, 1, "g").unwrap();
        load(&cache, &mut worker, 2, "F").unwrap();
        assert_eq!(functions(&cache), ["f", "g"]);
        delete(&cache, &mut worker, 1);
        assert_eq!((functions(&cache), cache.now().len()), (vec!["f".to_owned()], 1));
    }

    #[test]
    fn restoring_is_all_or_nothing() {
        let (source, mut worker) = (LibraryCache::new(1), LoadedLibraries::default());
        load(&source, &mut worker, 1, "f").unwrap();
        load(&source, &mut worker, 2, "g").unwrap();
        let dump = source.dump();
        let restore = |cache: &LibraryCache, policy| {
            let change = LibraryChange::Restore { dump: &dump, policy };
            let restored = LoadedLibraries::default().apply(cache, &commands::table(), &change, || ());
            restored.map(drop).map_err(|error| error.to_string())
        };
        let (cache, mut worker) = (LibraryCache::new(1), LoadedLibraries::default());
        load(&cache, &mut worker, 2, "other").unwrap();
        load(&cache, &mut worker, 3, "f").unwrap();
        assert_eq!(restore(&cache, RestorePolicy::Append).unwrap_err(), "ERR Library l2 already exists");
        assert_eq!(restore(&cache, RestorePolicy::Replace).unwrap_err(), "ERR Function f already exists");
        assert_eq!(functions(&cache), ["f", "other"]);
        load(&cache, &mut worker, 3, "h").unwrap();
        restore(&cache, RestorePolicy::Replace).unwrap();
        assert_eq!(functions(&cache), ["f", "g", "h"]);
        restore(&cache, RestorePolicy::Flush).unwrap();
        assert_eq!(functions(&cache), ["f", "g"]);
    }

    /// A worker that has loaded all of them, and another that changes them: few times, and more often than the journal is
    /// long.
    #[test]
    fn workers_let_go_of_what_others_have_removed() {
        for count in [10, JOURNAL_MAX + 10] {
            let cache = LibraryCache::new(2);
            let (mut one, mut other) = (LoadedLibraries::default(), LoadedLibraries::default());
            load(&cache, &mut one, 0, "kept").unwrap();
            (1..=count).for_each(|name| load(&cache, &mut one, name, &format!("f{name}")).unwrap());
            let called =
                |worker: &mut LoadedLibraries, name: &str| worker.find(&cache, name.as_bytes()).is_ok();
            assert!(called(&mut one, "F1") && called(&mut other, "f1") && called(&mut other, "kept"));
            (1..=count).for_each(|name| delete(&cache, &mut one, name));
            assert_eq!((one.loaded_count(), other.loaded_count()), (1, 2));
            assert!(!called(&mut other, "f1"));
            assert_eq!(other.loaded_count(), 1, "after {count} removals");
            load(&cache, &mut one, 0, "new").unwrap();
            assert!(!called(&mut other, "kept") && called(&mut other, "NEW"));
            assert_eq!((one.loaded_count(), other.loaded_count()), (1, 1));
            cache.flush();
            assert!(!called(&mut other, "new"));
            assert_eq!(other.loaded_count(), 0);
        }
    }
}
