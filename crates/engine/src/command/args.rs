//! The arguments of a request, as a cursor that latches its first error.
//!
//! A handler reads its arguments straight through and asks once, with [`Args::finish`] or
//! [`Args::check`], whether all of them were there and well-formed. After an error every read
//! answers a harmless default.

use dunlin_resp::number::parse_integer;

use super::{CommandError, CommandResult};

/// A cursor over the words of a request after the command's name.
#[derive(Debug, Clone)]
pub struct Args<'a> {
    words: &'a [&'a [u8]],
    at: usize,
    error: Option<CommandError>,
}

impl<'a> Args<'a> {
    /// A cursor behind the first `name_words` words (one, or two for a subcommand).
    #[inline]
    pub fn new(words: &'a [&'a [u8]], name_words: usize) -> Self {
        Self { words, at: name_words, error: None }
    }

    /// All words of the request, the name included.
    pub fn words(&self) -> &'a [&'a [u8]] {
        self.words
    }

    /// The words not yet read.
    #[inline]
    pub fn rest(&self) -> &'a [&'a [u8]] {
        &self.words[self.at..]
    }

    /// Reads all the remaining words.
    pub fn take_rest(&mut self) -> &'a [&'a [u8]] {
        let rest = self.rest();
        self.at = self.words.len();
        rest
    }

    /// Reads `count` words, or latches a syntax error if there are fewer.
    pub fn take(&mut self, count: usize) -> &'a [&'a [u8]] {
        match self.rest().get(..count) {
            Some(words) => {
                self.at += count;
                words
            }
            None => {
                self.fail(CommandError::Syntax);
                self.take_rest();
                &[]
            }
        }
    }

    /// How many words are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.words.len() - self.at
    }

    /// Whether all words have been read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.at == self.words.len()
    }

    /// The next word without reading it.
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.words.get(self.at).copied()
    }

    /// Reads a word; a missing one is a syntax error.
    #[inline]
    pub fn word(&mut self) -> &'a [u8] {
        match self.words.get(self.at) {
            Some(word) => {
                self.at += 1;
                word
            }
            None => {
                self.fail(CommandError::Syntax);
                b""
            }
        }
    }

    /// Reads a word if there is one.
    pub fn optional(&mut self) -> Option<&'a [u8]> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    /// Reads the next word if it is `token`, in any letter case.
    pub fn token(&mut self, token: &str) -> bool {
        let found = self.peek().is_some_and(|word| word.eq_ignore_ascii_case(token.as_bytes()));
        self.at += usize::from(found);
        found
    }

    /// Reads the next word if it is `token` and at least `operands` words follow it.
    pub fn token_with(&mut self, token: &str, operands: usize) -> bool {
        self.remaining() > operands && self.token(token)
    }

    /// Reads an integer of 64 bits.
    pub fn integer(&mut self) -> i64 {
        self.integer_or(CommandError::NotInteger)
    }

    /// Reads an integer of 64 bits, with an error text of the command's own.
    pub fn integer_or(&mut self, error: CommandError) -> i64 {
        let word = self.word();
        parse_integer(word).unwrap_or_else(|| {
            self.fail(error);
            0
        })
    }

    /// Reads an integer within `range`, with an error text of the command's own.
    pub fn integer_in(&mut self, range: std::ops::RangeInclusive<i64>, error: CommandError) -> i64 {
        let value = self.integer_or(error.clone());
        if range.contains(&value) {
            return value;
        }
        self.fail(error);
        *range.start()
    }

    /// Reads a floating-point number.
    pub fn float(&mut self) -> f64 {
        self.float_or(CommandError::NotFloat)
    }

    /// Reads a floating-point number, with an error text of the command's own.
    pub fn float_or(&mut self, error: CommandError) -> f64 {
        let word = self.word();
        crate::value::parse_float(word).unwrap_or_else(|| {
            self.fail(error);
            0.0
        })
    }

    /// Latches `error` unless there is one already.
    pub fn fail(&mut self, error: CommandError) {
        self.error.get_or_insert(error);
    }

    /// The first error so far.
    pub fn check(&mut self) -> CommandResult {
        self.error.take().map_or(Ok(()), Err)
    }

    /// The first error so far; words that no method has read are a syntax error.
    #[inline]
    pub fn finish(&mut self) -> CommandResult {
        if !self.is_empty() {
            self.fail(CommandError::Syntax);
        }
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args<'a>(words: &'a [&'a [u8]]) -> Args<'a> {
        Args::new(words, 1)
    }

    #[test]
    fn reads_straight_through() {
        let words: [&[u8]; 5] = [b"set", b"k", b"-5", b"ex", b"10"];
        let mut args = args(&words);
        assert_eq!(args.word(), b"k");
        assert_eq!(args.integer(), -5);
        assert!(!args.token("NX"));
        assert!(args.token_with("EX", 1));
        assert_eq!(args.integer(), 10);
        assert_eq!(args.finish(), Ok(()));
    }

    #[test]
    fn args_report_the_first_error() {
        let words: [&[u8]; 3] = [b"x", b"no", b"1"];
        let mut args = args(&words);
        assert_eq!(args.integer(), 0);
        assert_eq!(args.float(), 1.0);
        assert_eq!(args.word(), b"");
        assert_eq!(args.finish(), Err(CommandError::NotInteger));
    }

    #[test]
    fn unread_words_are_a_syntax_error() {
        let words: [&[u8]; 2] = [b"x", b"more"];
        assert_eq!(args(&words).finish(), Err(CommandError::Syntax));
    }
}
