//! Values of a file whose types Dunlin does not have (`module-data`).

use std::{collections::BTreeMap, fmt};

use dunlin_engine::rdb::{ModuleAux, Value};

use crate::config::ModuleData;

/// The values of a file whose types are not there, counted by type.
#[derive(Debug)]
pub(super) struct ForeignValues {
    treatment: ModuleData,
    counts: BTreeMap<String, u64>,
    /// Data of modules beside the keys.
    aux: Vec<ModuleAux>,
}

impl ForeignValues {
    pub(super) fn new(treatment: ModuleData) -> Self {
        Self { treatment, counts: BTreeMap::new(), aux: Vec::new() }
    }

    /// Keeps data of a module beside the keys, or leaves them out.
    pub(super) fn admit_aux(&mut self, aux: ModuleAux) {
        let module = aux.module;
        if self.treatment == ModuleData::Keep {
            tracing::warn!(
                "The file holds data of the module {module}, which are kept, and are written into files: servers without the module refuse those. \
                 module-data skip leaves them out"
            );
            self.aux.push(aux);
        } else {
            tracing::warn!("The file holds data of the module {module}, which are left out");
        }
    }

    /// The data of modules beside the keys that were kept.
    pub(super) fn into_aux(self) -> Vec<ModuleAux> {
        self.aux
    }

    /// Counts a value that was read; whether it is to be loaded.
    ///
    /// # Errors
    /// Returns the reason for which the file is refused.
    pub(super) fn admit(&mut self, value: &Value) -> Result<bool, String> {
        let Some(name) = value.foreign_type() else { return Ok(true) };
        match self.counts.get_mut(name) {
            Some(count) => *count += 1,
            None => _ = self.counts.insert(name.to_owned(), 1),
        }
        match self.treatment {
            ModuleData::Keep => Ok(true),
            ModuleData::Skip => Ok(false),
            ModuleData::Refuse => Err(format!(
                "is of the type {name}, which is not there; module-data keep loads it as it is, module-data skip leaves it out"
            )),
        }
    }

    /// Logs how many there were, if any.
    pub(super) fn report(&self) {
        if self.counts.is_empty() {
            return;
        }
        match self.treatment {
            ModuleData::Keep => tracing::warn!(
                "The file holds values of types that are not there, which are kept and which no command can read: {self}"
            ),
            _ => tracing::warn!("Left out values of types that are not there (module-data skip): {self}"),
        }
    }
}

impl fmt::Display for ForeignValues {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts.iter().enumerate().try_for_each(|(at, (name, count))| {
            let joint = if at == 0 { "" } else { ", " };
            write!(out, "{joint}{name} {count}")
        })
    }
}
