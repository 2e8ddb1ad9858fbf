//! [`AclRequest`]: a request as decisions see it, read off its row in the command table.

use std::ops::ControlFlow;

use dunlin_acl::{Denial, KeyAccess, Request, Touched};
use dunlin_engine::command::{Entry, Flags, KeyFlags, KeyShape, KeySpec};
use dunlin_resp::number::parse_integer;

/// A request, by its row and its words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AclRequest<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) words: &'a [&'a [u8]],
    /// The database that it runs in.
    pub(crate) database: usize,
}

/// The uses of a key that count as reading and as writing.
#[inline]
fn access(spec: &KeySpec) -> KeyAccess {
    let writes = [KeyFlags::UPDATE, KeyFlags::INSERT, KeyFlags::DELETE];
    let mut access = KeyAccess::NONE;
    if spec.flags.has(KeyFlags::ACCESS) {
        access = access.and(KeyAccess::READ);
    }
    if writes.into_iter().any(|flag| spec.flags.has(flag)) {
        access = access.and(KeyAccess::WRITE);
    }
    access
}

impl AclRequest<'_> {
    /// The number in a word that names a database, if it is one.
    fn number_at(&self, word: usize) -> Option<Touched> {
        let number = parse_integer(self.words.get(word)?).and_then(|number| i32::try_from(number).ok())?;
        Some(Touched::One { word, number })
    }

    /// The databases that words name.
    fn named_databases(&self) -> Vec<Touched> {
        match self.entry.command.name {
            "select" => self.number_at(1).into_iter().collect(),
            "move" => self.number_at(2).into_iter().collect(),
            "swapdb" => [1, 2].into_iter().filter_map(|at| self.number_at(at)).collect(),
            "copy" => {
                let is_option = |at: &usize| self.words[*at].eq_ignore_ascii_case(b"DB");
                (3..self.words.len()).filter(is_option).filter_map(|at| self.number_at(at + 1)).collect()
            }
            "flushall" => vec![Touched::All],
            _ => Vec::new(),
        }
    }

    /// Whether it touches the database that it runs in.
    fn touches_own_database(&self) -> bool {
        let command = self.entry.command;
        // EXEC has keys if it has conditions.
        let may_have_keys = !command.flags.has(Flags::RUNS_QUEUE) || self.words.len() > 1;
        let has_keys = may_have_keys && command.keys.iter().any(KeySpec::is_of_keys);
        let is_elsewhere = matches!(command.name, "select" | "swapdb" | "flushall");
        (has_keys || command.is_write() || command.is_read_only()) && !is_elsewhere
    }
}

impl Request for AclRequest<'_> {
    #[inline]
    fn command(&self) -> usize {
        self.entry.index
    }

    #[inline]
    fn is_for_everyone(&self) -> bool {
        self.entry.command.flags.has(Flags::NO_AUTH)
    }

    fn first_argument(&self) -> Option<&[u8]> {
        self.words.get(self.entry.name_words()).copied()
    }

    #[inline]
    fn keys(
        &self,
        mut visit: impl FnMut(usize, &[u8], KeyAccess) -> ControlFlow<Denial>,
    ) -> ControlFlow<Denial> {
        // Most commands have one key, at a fixed place.
        if let (KeyShape::One(at), [spec]) = (self.entry.keys, self.entry.command.keys) {
            let at = usize::from(at);
            return match self.words.get(at) {
                Some(key) => visit(at, key, access(&spec.used_by(self.entry.command, self.words))),
                None => ControlFlow::Continue(()),
            };
        }
        for spec in self.entry.command.keys.iter().filter(|spec| spec.is_of_keys()) {
            let access = access(&spec.used_by(self.entry.command, self.words));
            for at in spec.positions(self.words) {
                visit(at, self.words[at], access)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn channels(
        &self,
        mut visit: impl FnMut(usize, &[u8], bool) -> ControlFlow<Denial>,
    ) -> ControlFlow<Denial> {
        let (positions, is_pattern) = match self.entry.command.name {
            _ if !self.entry.command.flags.has(Flags::PUBSUB) || self.entry.container.is_some() => {
                (1..1, false)
            }
            "publish" | "spublish" => (1..2, false),
            "subscribe" | "ssubscribe" => (1..self.words.len(), false),
            "psubscribe" => (1..self.words.len(), true),
            _ => (1..1, false),
        };
        positions.into_iter().try_for_each(|at| visit(at, self.words[at], is_pattern))
    }

    fn databases(&self, mut visit: impl FnMut(Touched) -> ControlFlow<Denial>) -> ControlFlow<Denial> {
        self.named_databases().into_iter().try_for_each(&mut visit)?;
        if self.touches_own_database() {
            let number = i32::try_from(self.database).unwrap_or(i32::MAX);
            visit(Touched::One { word: 0, number })?;
        }
        ControlFlow::Continue(())
    }
}
