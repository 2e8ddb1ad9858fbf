//! Commands that compute something from large values and then store it: the first part may be done apart from
//! the worker.
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
    /// All of it, with what it has computed before.
    Finish(Option<Box<dyn Any + Send>>),
}

impl Phase<'_> {
    /// Whether what is looked up is counted.
    pub(super) fn counts(&self) -> bool {
        matches!(self, Self::Whole)
    }
}

impl<'a> WriteContext<'a> {
    /// For a command that only computes, apart from its worker. `nothing` holds no locks.
    pub(crate) fn preparing(
        nothing: &'a mut Locked<'_>,
        view: &'a View,
        result: &'a mut Option<Box<dyn Any + Send>>,
        database: usize,
        environment: &'a Environment,
        worker: &'a mut Worker,
    ) -> Self {
        let phase = Phase::Prepare { view, result };
        Self { phase, ..Self::new(nothing.shards(), database, &[], environment, worker) }
    }

    /// Has the command use what it has computed before, if it has.
    pub(crate) fn finish_with(&mut self, result: Option<Box<dyn Any + Send>>) {
        if result.is_some() {
            self.phase = Phase::Finish(result);
        }
    }

    /// What `compute` makes of the entries of some keys, which must depend on nothing else. Where it would visit
    /// more than a few of their elements the error, which is to be passed on, has it done apart from the worker
    /// and the command run again. Nothing may have been changed before; lookups are not counted here.
    pub fn compute<R: Any + Send>(
        &mut self,
        keys: &[&[u8]],
        elements: impl FnOnce(&[Option<EntryRef<'_>>]) -> usize,
        compute: impl FnOnce(&[Option<EntryRef<'_>>], Layout<'_>) -> R,
    ) -> Result<R, CommandError> {
        let layout = self.layout();
        match &mut self.phase {
            Phase::Finish(result) => {
                if let Some(result) = result.take() {
                    return Ok(*result.downcast().expect("the handler that has made it"));
                }
            }
            Phase::Prepare { view, result } => {
                let entries: Vec<_> = keys.iter().map(|key| view.find(key)).collect();
                **result = Some(Box::new(compute(&entries, layout)));
                return Err(CommandError::TooLong);
            }
            Phase::Whole => {}
        }
        let must_stay = self.serving || self.environment.deny_blocking || self.locked.is_everything();
        let visits_max = self.environment.visits_max.filter(|_| !must_stay);
        let entries = self.present(keys);
        if visits_max.is_some_and(|max| elements(&entries) > max) {
            return Err(CommandError::TooLong);
        }
        Ok(compute(&entries, layout))
    }

    /// The entries of several keys at once, each counted as a hit or a miss; an error where `check` finds one.
    pub fn check_entries(
        &mut self,
        keys: &[&[u8]],
        check: impl Fn(EntryRef<'_>) -> CommandResult,
    ) -> CommandResult {
        if let Phase::Prepare { view, .. } = &self.phase {
            return keys.iter().try_for_each(|key| view.find(key).map_or(Ok(()), &check));
        }
        keys.iter().try_for_each(|key| self.read(key).map_or(Ok(()), &check))
    }

    /// The entries of several keys at once, none of which has expired.
    fn present(&mut self, keys: &[&[u8]]) -> Vec<Option<EntryRef<'_>>> {
        let resolved: Vec<Key<'_>> = keys.iter().map(|key| self.key(key)).collect();
        let found = resolved.iter().map(|key| {
            let stripe = self.locked.shard(key.shard).database(self.database)?;
            let entry = stripe.entry(stripe.find(key.hash, key.bytes)?);
            (!entry.is_expired(self.environment.now_ms)).then_some(entry)
        });
        found.collect()
    }
}
