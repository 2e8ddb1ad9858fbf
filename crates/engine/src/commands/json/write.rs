//! The one way of all commands that change a document.

use std::any::Any;

use dunlin_json::{
    Document,
    path::{Budget, Path},
};

use super::{BYTES_PER_ELEMENT, json_of};
use crate::{
    command::CommandError,
    context::{ExpiryChange, WriteContext},
    keyspace::EntryRef,
    notify::EventClass,
    value::Json,
};

/// Values that a document loses are freed at a moment that delays no client if they take more.
const FREED_AT_ONCE_BYTES_MAX: usize = 1 << 20;

/// A change of the document under a key.
pub(super) struct Change<'c> {
    pub(super) key: &'c [u8],
    pub(super) path: &'c Path,
    /// The name of the event.
    pub(super) event: &'static str,
    /// Bytes of texts that are parsed for it.
    pub(super) parsed_bytes: usize,
    /// Whether values may go that take much memory.
    pub(super) frees: bool,
}

/// The answer for a missing key, and the document that is made for it.
type Create<'c, T> = &'c dyn Fn() -> Result<(T, Option<Document>), CommandError>;

impl Change<'_> {
    /// Does `operation`, which answers and says whether it has changed the document; `create` answers for a missing key
    /// and may make its document. `None` if the key is missing and `create` is. Both may run twice, and must depend on
    /// nothing else.
    pub(super) fn run<T: Any + Send>(
        &self,
        context: &mut WriteContext<'_>,
        create: Option<Create<'_, T>>,
        operation: impl Fn(&mut Document) -> Result<(T, bool), CommandError>,
    ) -> Result<Option<T>, CommandError> {
        let key = self.key;
        let elements = |entry: Option<EntryRef<'_>>| {
            let read = if self.path.is_static() {
                0
            } else {
                entry.and_then(json_of).map_or(0, |json| json.bytes())
            };
            (self.parsed_bytes + read) / BYTES_PER_ELEMENT
        };
        // A key of another type is refused below.
        let computed = context.compute_offloaded(key, elements, |entry, _| {
            let Some(entry) = entry else {
                return create.map(|create| create().map(|(answer, made)| (answer, made.map(Json::from))));
            };
            let mut document = json_of(entry)?.document();
            Some(
                operation(&mut document)
                    .map(|(answer, changed)| (answer, changed.then(|| Json::from(document)))),
            )
        })?;
        let (answer, changed) = match computed {
            Some(Some(result)) => {
                let (answer, made): (T, Option<Json>) = result?;
                let changed = made.is_some();
                if let Some(made) = made {
                    context.set_collection(key, made, ExpiryChange::Keep);
                }
                (answer, changed)
            }
            _ => match self.in_place(context, &operation)? {
                Some(done) => done,
                None => {
                    let Some(create) = create else { return Ok(None) };
                    let (answer, made) = create()?;
                    let changed = made.is_some();
                    if let Some(document) = made {
                        context.set_collection(key, Json::from(document), ExpiryChange::Clear);
                    }
                    (answer, changed)
                }
            },
        };
        if changed {
            context.count_changes(1);
            context.notify(EventClass::Module, self.event, key);
        }
        Ok(Some(answer))
    }

    /// Whether the change may free more than [`FREED_AT_ONCE_BYTES_MAX`]. Then a clone of the former document is freed in the
    /// background; the change copies the blocks that it touches.
    fn frees_much(&self, json: &Json) -> bool {
        if !self.frees || json.bytes() <= FREED_AT_ONCE_BYTES_MAX {
            return false;
        }
        if !self.path.is_static() {
            return true;
        }
        // A path of names and indexes has one match at most.
        let values = self.path.values(json.root(), &mut Budget::default()).unwrap_or_default();
        values.iter().any(|value| value.memory() > FREED_AT_ONCE_BYTES_MAX)
    }

    /// Does the operation where the document stands; `None` if the key is missing.
    fn in_place<T>(
        &self,
        context: &mut WriteContext<'_>,
        operation: impl Fn(&mut Document) -> Result<(T, bool), CommandError>,
    ) -> Result<Option<(T, bool)>, CommandError> {
        let edited = context.update(self.key, |json: &mut Json| {
            let former = self.frees_much(json).then(|| json.clone());
            let result = json.edit(&operation);
            let changed = result.as_ref().is_ok_and(|(_, changed)| *changed);
            ((result, former), changed)
        })?;
        let Some((result, former)) = edited else { return Ok(None) };
        former.into_iter().for_each(|former| context.discard(former));
        result.map(Some)
    }
}
