//! The parts that the commands of the SCAN family share: cursors and options.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::Element;

use crate::{
    command::{Args, CommandError, CommandResult},
    context::ReadContext,
    glob::{self, Glob},
    value::Collection,
};

/// Elements that a call visits, about, without COUNT.
pub(super) const COUNT_DEFAULT: usize = 10;

/// Reads a cursor: an unsigned number of 64 bits; ours stay below 2^42. The text is read as Redis
/// does, with `strtoul`: a minus takes the number's complement, the text ends at a NUL, and an empty
/// one is 0.
pub(super) fn parse_cursor(args: &mut Args<'_>) -> Result<u64, CommandError> {
    let text = args.word().split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Ok(0);
    }
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let digits = digits.first().is_some_and(u8::is_ascii_digit).then_some(digits);
    let cursor: Option<u64> = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let cursor = cursor.ok_or(CommandError::text("ERR invalid cursor"))?;
    Ok(if negative { cursor.wrapping_neg() } else { cursor })
}

/// The part that a command of the family can leave out of its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Omission {
    /// Nothing.
    None,
    /// The values of fields: NOVALUES.
    Values,
    /// The scores of members: NOSCORES.
    Scores,
}

/// The options of a walk through a collection.
#[derive(Debug)]
struct CollectionScan {
    /// The pattern that elements must match.
    pattern: Option<Glob>,
    /// How many elements a call visits, about.
    count: usize,
    /// Whether the answer has the elements' values.
    values: bool,
}

impl CollectionScan {
    /// Reads the options; `omission` says which of them leaves the values out.
    fn parse(args: &mut Args<'_>, omission: Omission) -> Result<Self, CommandError> {
        let mut options = Self { pattern: None, count: COUNT_DEFAULT, values: true };
        while !args.is_empty() {
            if args.token_with("COUNT", 1) {
                let wanted = args.integer();
                args.check()?;
                let wanted = usize::try_from(wanted).ok().filter(|count| *count > 0);
                options.count = wanted.ok_or(CommandError::Syntax)?;
            } else if args.token_with("MATCH", 1) {
                options.pattern = glob::filter(args.word())?;
            } else if args.token("NOVALUES") {
                if omission != Omission::Values {
                    return Err(CommandError::text("ERR NOVALUES option can only be used in HSCAN"));
                }
                options.values = false;
            } else if args.token("NOSCORES") {
                if omission != Omission::Scores {
                    return Err(CommandError::text("ERR NOSCORES option can only be used in ZSCAN"));
                }
                options.values = false;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(options)
    }

    /// Whether an element is asked for.
    #[inline]
    fn wants(&self, element: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.matches(element))
    }
}

/// The elements that a walk through a collection has found.
pub(super) struct Found {
    options: CollectionScan,
    /// In RESP2: scores are bulk strings here in both protocols.
    elements: ReplyBuffer,
    count: usize,
    visited: usize,
}

impl Found {
    /// Visits an element, and writes it and its value, if it has one, to the reply if they are asked for.
    pub(super) fn element(&mut self, name: Element<'_>, value: Option<impl FnOnce(&mut ReplyBuffer)>) {
        self.visited += 1;
        if !self.options.wants(&name.text()) {
            return;
        }
        match name {
            Element::Integer(integer) => self.elements.bulk_integer(integer),
            Element::String(text) => self.elements.bulk(text),
        }
        self.count += 1;
        if let Some(value) = value.filter(|_| self.options.values) {
            value(&mut self.elements);
            self.count += 1;
        }
    }
}

/// Answers a command that walks a collection: `len` is how many elements that has, `step` visits some behind a
/// cursor and answers the next.
pub(super) fn scan_collection<T: Collection + 'static>(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    omission: Omission,
    len: impl FnOnce(&T) -> usize,
    step: impl Fn(&T, u64, &mut Found) -> u64,
) -> CommandResult {
    let key = args.word();
    let mut cursor = parse_cursor(args)?;
    let Some(collection) = context.collection::<T>(key)? else {
        reply_scan(reply, 0, 0, ReplyBuffer::default());
        return Ok(());
    };
    let options = CollectionScan::parse(args, omission)?;
    let count = options.count;
    context.weigh(count.min(len(&collection)))?;
    let mut found = Found { options, elements: ReplyBuffer::default(), count: 0, visited: 0 };
    // Empty buckets count a little, so that a sparse table does not hold the worker for long.
    for _ in 0..count.saturating_mul(10) {
        cursor = step(&collection, cursor, &mut found);
        if cursor == 0 || found.visited >= count {
            break;
        }
    }
    reply_scan(reply, cursor, found.count, found.elements);
    Ok(())
}

/// Writes the answer of a scan: the cursor to go on from and the elements found.
fn reply_scan(reply: &mut ReplyBuffer, cursor: u64, found: usize, mut elements: ReplyBuffer) {
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(cursor).as_bytes());
    reply.array(found);
    reply.append(&mut elements);
}
