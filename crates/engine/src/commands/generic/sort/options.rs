//! The options of a SORT request, and which of its words are keys.

use super::pattern::Pattern;
use crate::command::{Args, CommandError};

/// An item of the reply for each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Get<'a> {
    /// The element.
    Itself,
    /// The text that a pattern finds for it; nothing if the pattern has no place for the element.
    Found(Option<Pattern<'a>>),
}

/// The options of a request.
#[derive(Debug, Default)]
pub(super) struct Options<'a> {
    /// The place of the weights; the elements are their own without.
    pub(super) by: Option<Pattern<'a>>,
    /// Whether the elements stay in the order they have.
    pub(super) keep_order: bool,
    /// Whether weights are compared as texts.
    pub(super) as_texts: bool,
    pub(super) descending: bool,
    /// The first element wanted, and how many; a negative number of them means all.
    pub(super) limit: Option<(i64, i64)>,
    pub(super) gets: Vec<Get<'a>>,
    /// The key that gets the result instead of the client.
    pub(super) store: Option<&'a [u8]>,
    /// Whether a script asks.
    pub(super) in_script: bool,
}

impl<'a> Options<'a> {
    /// Reads the words behind the key.
    pub(super) fn parse(args: &mut Args<'a>, may_store: bool, in_script: bool) -> Result<Self, CommandError> {
        let mut options = Self { in_script, ..Self::default() };
        while !args.is_empty() {
            if args.token("ASC") {
                options.descending = false;
            } else if args.token("DESC") {
                options.descending = true;
            } else if args.token("ALPHA") {
                options.as_texts = true;
            } else if args.token_with("LIMIT", 2) {
                options.limit = Some((args.integer(), args.integer()));
                args.check()?;
            } else if may_store && args.token_with("STORE", 1) {
                options.store = Some(args.word());
            } else if args.token_with("BY", 1) {
                options.by = Pattern::parse(args.word());
                // A pattern without a place for the element gives all elements the same weight.
                options.keep_order |= options.by.is_none();
            } else if args.token_with("GET", 1) {
                options.gets.push(match args.word() {
                    b"#" => Get::Itself,
                    pattern => Get::Found(Pattern::parse(pattern)),
                });
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(options)
    }

    /// Which of `count` elements in order are wanted.
    pub(super) fn wanted(&self, count: usize) -> std::ops::Range<usize> {
        let Some((first, wanted)) = self.limit else { return 0..count };
        let first = usize::try_from(first).unwrap_or(0).min(count);
        let wanted = usize::try_from(wanted).unwrap_or(count);
        first..first.saturating_add(wanted).min(count)
    }
}

/// The options of a request that name keys or patterns, with their operands' positions. A word that
/// is not an option is passed over: the handler reports it to the client.
fn operands<'w>(words: &'w [&'w [u8]]) -> impl Iterator<Item = (&'static str, usize)> + 'w {
    let mut at = 2;
    std::iter::from_fn(move || {
        while let Some(word) = words.get(at) {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            at += 1;
            let option = ["BY", "GET", "STORE"].into_iter().find(|name| is(name));
            if let Some(option) = option.filter(|_| at < words.len()) {
                at += 1;
                return Some((option, at - 1));
            }
            at += if is("LIMIT") { 2 } else { 0 };
        }
        None
    })
}

/// The position of the key that STORE names: the last one, if there are several.
pub(super) fn stored_at(words: &[&[u8]]) -> Option<usize> {
    operands(words).filter(|(option, _)| *option == "STORE").last().map(|(_, at)| at)
}

/// Whether a request has patterns, and so looks at keys that it does not name.
pub(super) fn has_patterns(words: &[&[u8]]) -> bool {
    operands(words).any(|(option, at)| option != "STORE" && Pattern::parse(words[at]).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<&[u8]> {
        line.split(' ').map(str::as_bytes).collect()
    }

    #[test]
    fn keys_are_found_among_the_options() {
        for (line, stored, patterns) in [
            ("sort k", None, false),
            ("sort k store d", Some(3), false),
            ("sort k by nosort get # store d limit 0 1 STORE e", Some(12), false),
            ("sort k store d store", Some(3), false),
            ("sort k limit 1 store d", None, false),
            ("sort k by store", None, false),
            ("sort k by w_*", None, true),
            ("sort k get # get v_*->f store by", Some(7), true),
            ("sort k store a*", Some(3), false),
        ] {
            let words = words(line);
            assert_eq!((stored_at(&words), has_patterns(&words)), (stored, patterns), "{line}");
        }
    }

    #[test]
    fn limits_are_cut_to_what_there_is() {
        for (limit, range) in [
            (None, 0..5),
            (Some((1, 2)), 1..3),
            (Some((-3, 2)), 0..2),
            (Some((2, -1)), 2..5),
            (Some((2, 0)), 2..2),
            (Some((4, 9)), 4..5),
            (Some((9, 1)), 5..5),
            (Some((i64::MAX, i64::MAX)), 5..5),
        ] {
            assert_eq!(Options { limit, ..Options::default() }.wanted(5), range, "{limit:?}");
        }
    }
}
