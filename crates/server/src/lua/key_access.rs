//! Which commands a script may call while only the stripes of its declared keys are locked.

use dunlin_engine::command::{BeginSearch, CommandTable, Entry, FindKeys, Flags, KeySpec, Run};
use dunlin_resp::number::parse_integer;
use dunlin_scripting::Word;

/// Commands of the host that touch no keys, whatever their arguments.
const KEYLESS: &[&str] = &[
    "echo",
    "himport|discard",
    "himport|discardall",
    "himport|prepare",
    "ping",
    "publish",
    "select",
    "spublish",
    "time",
];

/// Whether a command, known as far as `words` say, and of which more words of the kind `list` may follow,
/// touches declared keys only. A command that is refused before it runs touches none.
pub(crate) fn keeps_to_declared(table: &CommandTable, words: &[Word<'_>], list: Option<Word<'_>>) -> bool {
    let Some(Word::Text(name)) = words.first() else { return false };
    let Some(mut entry) = table.find(name) else { return true };
    if !entry.subcommands.is_empty() {
        let Some(Word::Text(name)) = words.get(1) else { return false };
        let Some(subcommand) = table.find_subcommand(entry, name) else { return true };
        entry = subcommand;
    }
    if entry.command.flags.has(Flags::NO_SCRIPT) {
        return true;
    }
    match entry.command.run {
        Run::Read(_) | Run::Write(_) | Run::Block(_) if entry.command.undeclared_keys.is_some() => false,
        Run::Read(_) | Run::Write(_) | Run::Block(_) => {
            entry.command.keys.iter().all(|spec| finds_declared(entry, spec, words, list))
        }
        Run::Host(_) => KEYLESS.iter().any(|name| *name == entry.full_name()),
        Run::Help(_) => true,
        Run::Keyspace(_) | Run::Exclusive(_) | Run::Container => false,
    }
}

/// Whether all words in which a specification finds keys are declared ones.
fn finds_declared(entry: &Entry, spec: &KeySpec, words: &[Word<'_>], list: Option<Word<'_>>) -> bool {
    let BeginSearch::Index(begin) = spec.begin else { return false };
    let begin = usize::from(begin);
    if begin < entry.name_words() {
        return false;
    }
    let is_declared = |word: &Word<'_>| *word == Word::Declared;
    let list_is_declared = list.is_none_or(|list| list == Word::Declared);
    match spec.find {
        FindKeys::Range { last, step: 1, .. } => {
            // Every word from the first key on, or as many as there can be keys; if one of them is behind
            // those that are known, it is one of the list.
            let length = usize::try_from(last).map_or(usize::MAX, |last| last + 1);
            let trailing = if last < -1 && list.is_none() { last.unsigned_abs() as usize - 1 } else { 0 };
            let end = words.len().saturating_sub(trailing);
            let reaches_list = begin.saturating_add(length) > words.len();
            words.iter().take(end).skip(begin).take(length).all(is_declared)
                && (!reaches_list || list_is_declared)
        }
        FindKeys::Range { step, .. } => {
            list.is_none() && words.iter().skip(begin).step_by(usize::from(step).max(1)).all(is_declared)
        }
        FindKeys::Count { count_at, first, step } => {
            let Some(Word::Text(count)) = words.get(begin + usize::from(count_at)) else { return false };
            let count = parse_integer(count).and_then(|count| usize::try_from(count).ok());
            let Some(count) = count else { return list.is_none() };
            let (first, step) = (begin + usize::from(first), usize::from(step).max(1));
            let Some(keys) = count.checked_mul(step).and_then(|count| words.get(first..)?.get(..count))
            else {
                // Fewer words than it says: no keys are found, unless the list has them.
                return list.is_none();
            };
            keys.iter().step_by(step).all(is_declared)
        }
    }
}
