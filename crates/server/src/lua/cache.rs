//! The scripts that clients have shown: one cache for all workers, and each worker's compiled ones.

use std::{
    collections::hash_map,
    ops::Deref,
    rc::Rc,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use dunlin_scripting::{Heap, Machine, ScriptFlags, Sha, ShaMap};

use super::{MACHINE_BYTES_MAX, heaps::HeapFigures};

/// A script.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) sha: Sha,
    /// The text as it came.
    pub(crate) text: Vec<u8>,
    pub(crate) flags: ScriptFlags,
    /// Whether all keys that it can touch are among those that a call declares.
    pub(crate) keeps_to_declared: bool,
}

impl Script {
    /// Bytes that it takes, with its place in the cache.
    fn bytes(&self) -> usize {
        const PLACE_BYTES: usize = 48;
        self.text.capacity() + size_of::<Self>() + PLACE_BYTES
    }
}

/// The scripts of all clients.
#[derive(Debug)]
pub(crate) struct ScriptCache {
    scripts: RwLock<ShaMap<Arc<Script>>>,
    /// Bytes of them; changed under the lock.
    bytes: AtomicUsize,
    /// How often it has been emptied.
    generation: AtomicU64,
    /// Of each worker's machine.
    pub(crate) heaps: HeapFigures,
}

impl ScriptCache {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            scripts: RwLock::default(),
            bytes: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
            heaps: HeapFigures::new(workers),
        }
    }

    pub(crate) fn get(&self, sha: &Sha) -> Option<Arc<Script>> {
        self.scripts.read().unwrap_or_else(PoisonError::into_inner).get(sha).cloned()
    }

    /// Adds a script, unless it is there.
    pub(crate) fn add(&self, script: Arc<Script>) {
        let mut scripts = self.scripts.write().unwrap_or_else(PoisonError::into_inner);
        let bytes = script.bytes();
        if let hash_map::Entry::Vacant(place) = scripts.entry(script.sha) {
            place.insert(script);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Forgets all scripts. Workers give their machines up within a slice of background work, which no limit waits for.
    pub(crate) fn flush(&self) {
        let mut scripts = self.scripts.write().unwrap_or_else(PoisonError::into_inner);
        self.generation.fetch_add(1, Ordering::Release);
        self.bytes.store(0, Ordering::Relaxed);
        self.heaps.forget_limited();
        drop(std::mem::take(&mut *scripts));
    }

    pub(crate) fn len(&self) -> usize {
        self.scripts.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Bytes of the scripts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A script that a worker has compiled. Only that worker counts it, so that workers that run the same script do not
/// pass a counter to and fro.
#[derive(Debug)]
pub(crate) struct CompiledScript(Arc<Script>);

impl Deref for CompiledScript {
    type Target = Script;

    fn deref(&self) -> &Script {
        &self.0
    }
}

/// A worker's machine and the scripts it has compiled.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    /// Made when the first script comes.
    machine: Option<Box<Machine>>,
    scripts: ShaMap<Rc<CompiledScript>>,
    generation: u64,
    /// A machine that was given up, to be freed where no client waits for it.
    retired: Option<Box<Machine>>,
}

impl Compiled {
    /// Forgets the scripts that the cache has forgotten; the machine begins anew, too.
    #[inline]
    pub(crate) fn catch_up(&mut self, cache: &ScriptCache) {
        let generation = cache.generation.load(Ordering::Acquire);
        if generation != self.generation {
            let retired = self.machine.take().or(self.retired.take());
            *self = Self { generation, retired, ..Self::default() };
        }
    }

    /// The machine that was given up last.
    pub(crate) fn take_retired(&mut self) -> Option<Box<Machine>> {
        self.retired.take()
    }

    /// The heap of the machine, if there is one.
    #[inline]
    pub(crate) fn heap(&self) -> Option<Heap<'_>> {
        self.machine.as_ref().map(|machine| machine.heap())
    }

    /// The script of that name, if it is compiled here already.
    #[inline]
    pub(crate) fn get(&mut self, cache: &ScriptCache, sha: &Sha) -> Option<Rc<CompiledScript>> {
        self.catch_up(cache);
        self.scripts.get(sha).cloned()
    }

    /// Takes in a script that the machine has compiled.
    pub(crate) fn add(&mut self, script: &Arc<Script>) -> Rc<CompiledScript> {
        let script = Rc::new(CompiledScript(Arc::clone(script)));
        self.scripts.insert(script.0.sha, Rc::clone(&script));
        script
    }

    /// The machine, for one call; to be put back.
    pub(crate) fn take_machine(&mut self) -> Box<Machine> {
        self.machine.take().unwrap_or_else(|| Box::new(Machine::new(MACHINE_BYTES_MAX)))
    }

    pub(crate) fn put_machine(&mut self, machine: Box<Machine>) {
        self.machine = Some(machine);
    }
}
