//! Commands of a pipeline that are looked up together, and what is fetched ahead for them.

use dunlin_engine::{
    command::{ElementWords, KeyShape},
    keyspace::{Inside, Key, Keyspace},
};
use dunlin_resp::{Batch, Limits};

use super::Executor;
use crate::{session::Session, shared::Shared};

/// Commands that are decoded and prefetched together.
pub(super) const WINDOW: usize = 64;

/// The commands of a window, looked up.
#[derive(Debug, Default)]
pub(super) struct Window<'a> {
    pub(super) words: Vec<&'a [u8]>,
    pub(super) keys: Vec<Key<'a>>,
    pub(super) commands: Vec<Prepared>,
    /// Names of elements of the collection that is being fetched from.
    pub(super) elements: Vec<&'a [u8]>,
    /// The input that the commands were decoded from, from the first one on.
    pub(super) input: &'a [u8],
    /// Bytes of words that are not there: of the only command.
    pub(super) detached_bytes: usize,
}

/// A command of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prepared {
    /// Ends of its words and keys in the window.
    pub(super) words_end: usize,
    pub(super) keys_end: usize,
    /// Bytes that it takes of the input.
    pub(super) bytes: usize,
    /// Its place in the command table, `None` for an unknown command.
    pub(super) entry: Option<usize>,
    /// Which of its words name elements.
    pub(super) elements: Option<ElementWords>,
}

impl Window<'_> {
    /// An empty window on the same memory: collecting nothing from a vector keeps its allocation.
    pub(super) fn recycle<'b>(mut self) -> Window<'b> {
        self.words.clear();
        self.keys.clear();
        self.commands.clear();
        self.elements.clear();
        Window {
            words: self.words.into_iter().map(|_| -> &[u8] { unreachable!("it is empty") }).collect(),
            keys: self.keys.into_iter().map(|_| -> Key<'_> { unreachable!("it is empty") }).collect(),
            commands: self.commands,
            elements: self.elements.into_iter().map(|_| -> &[u8] { unreachable!("it is empty") }).collect(),
            input: &[],
            detached_bytes: 0,
        }
    }
}

impl Executor {
    pub(super) fn limits(&self, session: &Session) -> Limits {
        Limits {
            bulk_bytes_max: self.policy.string_bytes_max as u64,
            authenticated: !self.is_stranger(session),
        }
    }

    /// Finds the commands of the batch, hashes their keys, fetches ahead.
    pub(super) fn prepare<'a>(
        shared: &Shared,
        inside: Option<&Inside<'_>>,
        batch: &'a Batch,
        input: &'a [u8],
        batch_start: usize,
        database: usize,
        window: &mut Window<'a>,
    ) {
        let keyspace = &shared.engine.keyspace;
        let (mut words_end, mut input_start) = (0, batch_start);
        let (mut names_elements, mut repeats) = (false, 0);
        window.input = &input[batch_start..];
        window.words.extend(batch.words(input));
        for (spans, input_end) in batch.commands() {
            let entry = shared.commands.find_at_front(batch.text_from(input, spans[0]), spans[0].len());
            if let Some(entry) = entry
                && entry.renamed.is_some()
            {
                // From here on it goes by the name that logs and replicas know.
                window.words[words_end] = entry.command.name.as_bytes();
            }
            let words = &window.words[words_end..words_end + spans.len()];
            words_end += spans.len();
            match entry.map(|entry| (entry, entry.keys)) {
                Some((_, KeyShape::One(at))) => {
                    if let Some(word) = words.get(usize::from(at)) {
                        let same = window.keys.last().filter(|last| last.has_bytes(word));
                        repeats += usize::from(same.is_some());
                        window.keys.push(
                            same.map_or_else(|| keyspace.key(word), |last| Key { bytes: word, ..*last }),
                        );
                    }
                }
                Some((entry, KeyShape::Many)) => {
                    for spec in entry.command.keys {
                        for position in spec.positions(words) {
                            window.keys.push(keyspace.key(words[position]));
                        }
                    }
                }
                Some((_, KeyShape::None)) | None => {}
            }
            let elements = entry.and_then(|entry| entry.elements);
            window.commands.push(Prepared {
                words_end,
                keys_end: window.keys.len(),
                bytes: input_end - input_start,
                entry: entry.map(|entry| entry.index),
                elements,
            });
            names_elements |= elements.is_some();
            input_start = input_end;
        }
        if window.keys.len() > 1
            && let Some(inside) = inside
        {
            // A single key is looked up at once, even if it is asked for again and again.
            if repeats + 1 < window.keys.len() {
                keyspace.prefetch(inside, database, &window.keys);
            }
            if names_elements {
                Self::prefetch_elements(keyspace, inside, database, window);
            }
        }
    }

    /// Fetches ahead into collections: the elements that commands of the window name, if several
    /// commands in a row have the same key. For one alone it would cost more than it spares.
    fn prefetch_elements(keyspace: &Keyspace, inside: &Inside<'_>, database: usize, window: &mut Window<'_>) {
        let Window { words, keys, commands, elements, .. } = window;
        let (mut words_start, mut keys_start) = (0, 0);
        let mut collection: Option<Key<'_>> = None;
        elements.clear();
        for command in commands.iter() {
            let words = &words[words_start..command.words_end];
            let key = keys[keys_start..command.keys_end].first();
            (words_start, keys_start) = (command.words_end, command.keys_end);
            let (Some(names), Some(key)) = (command.elements, key) else { continue };
            match &collection {
                Some(last) if last.hash == key.hash => {}
                last => {
                    if let (Some(last), 2..) = (last, elements.len()) {
                        keyspace.prefetch_elements(inside, database, last, elements);
                    }
                    elements.clear();
                    collection = Some(*key);
                }
            }
            elements.extend(names.of(words).take(WINDOW - elements.len()));
        }
        if let (Some(last), 2..) = (&collection, elements.len()) {
            keyspace.prefetch_elements(inside, database, last, elements);
        }
    }
}
