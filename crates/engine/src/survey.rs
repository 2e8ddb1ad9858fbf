//! A survey of the keyspace for statistics: keys and bytes of each database, and the keys that clients wait for.
//!
//! Stripes are visited one after the other, each under its lock for O(databases): the sums of a busy keyspace are of no one
//! instant.

use crate::{
    execute::Engine,
    keyspace::{BlockingKeys, Locked, Usage},
};

/// Sums over the keyspace.
#[derive(Debug, Default, Clone)]
pub struct Survey {
    /// By database.
    pub databases: Vec<Usage>,
    /// Keys that clients wait for.
    pub blocking: BlockingKeys,
}

impl Survey {
    /// Sums of all databases.
    pub fn total(&self) -> Usage {
        let mut total = Usage::default();
        self.databases.iter().for_each(|usage| total.add(*usage));
        total
    }

    fn add(&mut self, locked: &Locked<'_>, stripe: usize) {
        let state = locked.stripe(stripe);
        for (database, usage) in self.databases.iter_mut().enumerate() {
            usage.add(state.usage(Some(database)));
        }
        if let Some(queues) = state.queues() {
            let count = queues.count();
            self.blocking.keys += count.keys;
            self.blocking.on_loss += count.on_loss;
        }
    }
}

impl Engine {
    /// Surveys the keyspace. The caller is inside the gate. O(stripes × databases).
    pub fn survey(&self) -> Survey {
        let mut survey = self.empty_survey();
        self.keyspace.stripes().for_each(|stripe| survey.add(&self.keyspace.lock_one(stripe), stripe));
        survey
    }

    /// Surveys the keyspace for a thread that is not inside the gate; `None` if the gate or a stripe is held for long.
    /// O(stripes × databases).
    pub fn survey_unless_long(&self) -> Option<Survey> {
        let mut survey = self.empty_survey();
        for stripe in self.keyspace.stripes() {
            let _open = self.keyspace.keep_open()?;
            survey.add(&self.keyspace.lock_one_unless_long(stripe)?, stripe);
        }
        Some(survey)
    }

    fn empty_survey(&self) -> Survey {
        Survey {
            databases: vec![Usage::default(); self.keyspace.databases()],
            blocking: BlockingKeys::default(),
        }
    }
}
