//! Commands that compute something from large values and then store it: an offload thread may do the first part.
//!
//! ```text
//! Whole ──compute: too long──▶ Prepare, on a view ──▶ Finish, under the locks, with the result
//! ```
//!
//! Such a handler is run up to three times. All it does before [`WriteContext::compute`] is reading its words and
//! looking its sources up, which is counted once.

use std::any::Any;

use crate::{
    command::{CommandError, CommandResult},
    keyspace::{EntryRef, Key, Locked, View},
    value::Layout,
};

use super::{Environment, Worker, WriteContext};

/// How much of a command is being run.
#[derive(Debug)]
pub(super) enum Phase<'a> {
    /// All of it, or as far as it can say that it will take long.
    Whole,
    /// As far as it computes something, from a view.
    Prepare { view: &'a View, result: &'a mut Option<Box<dyn Any + Send>> },
    /// All of it, with the result that it has computed before.
    Finish(Option<Box<dyn Any + Send>>),
}

impl Phase<'_> {
    /// Whether lookups are counted.
    pub(super) fn counts(&self) -> bool {
        matches!(self, Self::Whole)
    }
}

impl<'a> WriteContext<'a> {
    /// For a command that only computes, on an offload thread. `nothing` holds no locks.
    pub(crate) fn preparing(
        nothing: &'a mut Locked<'_>,
        view: &'a View,
        result: &'a mut Option<Box<dyn Any + Send>>,
        database: usize,
        environment: Environment<'a>,
        worker: &'a mut Worker,
    ) -> Self {
        let phase = Phase::Prepare { view, result };
        Self { phase, ..Self::new(nothing.stripes(), database, &[], environment, worker) }
    }

    /// Makes the command use the result that it has computed before, if there is one.
    pub(crate) fn finish_with(&mut self, result: Option<Box<dyn Any + Send>>) {
        if result.is_some() {
            self.phase = Phase::Finish(result);
        }
    }

    /// Returns the result of `compute` on the entries of some keys, which must depend on nothing else. If it would
    /// visit more than a few of their elements, the error, which is to be passed on, has an offload thread compute
    /// it and the command run again. Nothing may have been changed before; lookups are not counted here.
    pub fn compute<R: Any + Send>(
        &mut self,
        keys: &[&[u8]],
        elements: impl FnOnce(&[Option<EntryRef<'_>>]) -> usize,
        compute: impl FnOnce(&[Option<EntryRef<'_>>], Layout<'_>) -> R,
    ) -> Result<R, CommandError> {
        let layout = self.layout();
        if let Some(result) = self.computed() {
            return Ok(result);
        }
        if let Phase::Prepare { view, result } = &mut self.phase {
            let entries: Vec<_> = keys.iter().map(|key| view.find(key)).collect();
            **result = Some(Box::new(compute(&entries, layout)));
            return Err(CommandError::TooLong);
        }
        let visits_max = self.visits_max();
        let entries = self.present(keys);
        if visits_max.is_some_and(|max| elements(&entries) > max) {
            return Err(CommandError::TooLong);
        }
        Ok(compute(&entries, layout))
    }

    /// [`Self::compute`] for work that is done sooner in place while no client waits: `None` if it is little
    /// enough, or has to be done at once.
    pub fn compute_offloaded<R: Any + Send>(
        &mut self,
        key: &[u8],
        elements: impl FnOnce(Option<EntryRef<'_>>) -> usize,
        compute: impl FnOnce(Option<EntryRef<'_>>, Layout<'_>) -> R,
    ) -> Result<Option<R>, CommandError> {
        self.compute_all_offloaded(
            &[key],
            |entries| elements(entries[0]),
            |entries, layout| compute(entries[0], layout),
        )
    }

    /// [`Self::compute_offloaded`] from several keys.
    pub fn compute_all_offloaded<R: Any + Send>(
        &mut self,
        keys: &[&[u8]],
        elements: impl FnOnce(&[Option<EntryRef<'_>>]) -> usize,
        compute: impl FnOnce(&[Option<EntryRef<'_>>], Layout<'_>) -> R,
    ) -> Result<Option<R>, CommandError> {
        let layout = self.layout();
        if let Some(result) = self.computed() {
            return Ok(Some(result));
        }
        if let Phase::Prepare { view, result } = &mut self.phase {
            let entries: Vec<_> = keys.iter().map(|key| view.find(key)).collect();
            **result = Some(Box::new(compute(&entries, layout)));
            return Err(CommandError::TooLong);
        }
        match self.visits_max() {
            Some(max) if elements(&self.present(keys)) > max => Err(CommandError::TooLong),
            _ => Ok(None),
        }
    }

    /// Whether [`Self::compute_all_offloaded`] of at most `elements_max` elements may have anything to say: if not,
    /// it need not be asked.
    pub fn may_offload(&self, elements_max: usize) -> bool {
        match self.phase {
            Phase::Whole => self.visits_max().is_some_and(|max| elements_max > max),
            Phase::Prepare { .. } | Phase::Finish(_) => true,
        }
    }

    /// Returns the result of `answer` on the entries of some keys, for a command that turns out to change nothing.
    /// If it would visit more than a few elements, the error, which is to be passed on, makes an offload thread
    /// run the whole command.
    pub fn examine<R>(
        &mut self,
        keys: &[&[u8]],
        elements: impl FnOnce(&[Option<EntryRef<'_>>]) -> usize,
        answer: impl FnOnce(&[Option<EntryRef<'_>>]) -> R,
    ) -> Result<R, CommandError> {
        if let Phase::Prepare { view, .. } = &self.phase {
            let entries: Vec<_> = keys.iter().map(|key| view.find(key)).collect();
            return Ok(answer(&entries));
        }
        let visits_max = self.visits_max();
        let entries = self.present(keys);
        if visits_max.is_some_and(|max| elements(&entries) > max) {
            return Err(CommandError::TooLong);
        }
        Ok(answer(&entries))
    }

    /// The result that the command has computed before.
    fn computed<R: Any>(&mut self) -> Option<R> {
        let Phase::Finish(result) = &mut self.phase else { return None };
        let result = result.take()?;
        Some(*result.downcast().expect("the handler that has made it"))
    }

    /// How many elements may be visited here; `None` if the command has to be done at once.
    fn visits_max(&self) -> Option<usize> {
        let must_stay = self.serving || self.environment.caller.deny_blocking || self.locked.is_everything();
        self.environment.caller.visits_max.filter(|_| !must_stay)
    }

    /// Whether the command is being offloaded, in which it gets no farther than its computation: only the
    /// keys that it reads or changes are there, and only to be read.
    pub fn is_offloaded(&self) -> bool {
        self.view().is_some()
    }

    /// The view of a command that is offloaded.
    pub(super) fn view(&self) -> Option<&'a View> {
        match self.phase {
            Phase::Prepare { view, .. } => Some(view),
            _ => None,
        }
    }

    /// The entries of several keys at once, each counted as a hit or a miss; an error if `check` finds one.
    pub fn check_entries(
        &mut self,
        keys: &[&[u8]],
        check: impl Fn(EntryRef<'_>) -> CommandResult,
    ) -> CommandResult {
        keys.iter().try_for_each(|key| self.read(key).map_or(Ok(()), &check))
    }

    /// The entries of several keys at once, none of which has expired.
    fn present(&mut self, keys: &[&[u8]]) -> Vec<Option<EntryRef<'_>>> {
        let resolved: Vec<Key<'_>> = keys.iter().map(|key| self.key(key)).collect();
        let found = resolved.iter().map(|key| {
            let part = self.locked.stripe(key.stripe).database(self.database)?;
            let entry = part.entry(part.find(key.hash, key.bytes)?);
            (!entry.is_expired(self.environment.caller.now_ms)).then_some(entry)
        });
        found.collect()
    }
}
