//! Replaces those functions of the library `string` whose originals a script can make run out of stack, or run
//! for ever: patterns (`find`, `match`, `gmatch`, `gsub`), and `rep`.
//!
//! The results are those of the originals. Beyond that, the search is bounded (`pattern.rs`), their work counts,
//! and their results are refused if the memory of scripts is used up.

use std::ffi::c_int;

use mlua_sys::{self as ffi, lua_State};

use crate::{
    budget::STEP_BYTES,
    pattern::{Captured, Captures, Fault, Search, anchored, is_special, visible},
    stack::{Kind, NativeFn, NativeResult, ROOM, Raised, Stack, native, run_native},
};

/// The functions that replace the library's own, by name.
pub(crate) const FUNCTIONS: [(&str, NativeFn); 6] = [
    ("find", native!(find)),
    ("match", native!(match_)),
    ("gmatch", native!(gmatch)),
    ("gfind", native!(gmatch)),
    ("gsub", gsub),
    ("rep", native!(repeat)),
];

fn repeat(stack: Stack<'_>) -> NativeResult {
    let text = stack.text_argument(1)?;
    // C's `int`, as the original counts.
    let count = usize::try_from(stack.integer_argument(2)? as c_int).unwrap_or(0);
    let bytes = text.len().saturating_mul(count);
    stack.steps(bytes / STEP_BYTES)?;
    stack.has_memory(bytes)?;
    stack.push_result(text.repeat(count))?;
    Ok(1)
}

/// The start of a search: from 1, or from the end backward.
fn start(stack: Stack<'_>, at: c_int, length: usize) -> Result<usize, Raised> {
    let place = stack.optional_integer(at, 1)?;
    let from_end = if place < 0 { place.saturating_add_unsigned(length as u64 + 1) } else { place };
    Ok(usize::try_from(from_end - 1).unwrap_or(0).min(length))
}

fn raise(stack: Stack<'_>, fault: Fault<Raised>) -> Raised {
    match fault {
        Fault::Pattern(text) => stack.raise(text),
        Fault::Refused(raised) => raised,
    }
}

fn push_capture(stack: Stack<'_>, subject: &[u8], captured: Captured) -> Result<(), Raised> {
    match captured {
        Captured::Bytes(start, end) => stack.push_result(&subject[start..end])?,
        Captured::Position(at) => stack.push_number(at as f64 + 1.0),
        Captured::Unfinished(_) => return Err(stack.raise("unfinished capture")),
    }
    Ok(())
}

/// Pushes all captures; of a pattern without any, the whole match.
fn push_captures(
    stack: Stack<'_>,
    subject: &[u8],
    whole: Option<(usize, usize)>,
    captures: &Captures,
) -> NativeResult {
    let captures = captures.get();
    let stack = stack.room_or_raise(captures.len() as c_int + 1, "too many captures")?;
    match (captures, whole) {
        ([], Some((start, end))) => {
            push_capture(stack, subject, Captured::Bytes(start, end))?;
            return Ok(1);
        }
        _ => captures.iter().try_for_each(|captured| push_capture(stack, subject, *captured))?,
    }
    Ok(captures.len() as c_int)
}

fn find(stack: Stack<'_>) -> NativeResult {
    let (subject, pattern) = (stack.text_argument(1)?, stack.text_argument(2)?);
    let from = start(stack, 3, subject.len())?;
    if stack.boolean(4) || !is_special(pattern) {
        stack.steps((subject.len() - from) / STEP_BYTES)?;
        let found = memchr::memmem::find(&subject[from..], pattern);
        return Ok(match found {
            Some(at) => {
                stack.push_number((from + at + 1) as f64);
                stack.push_number((from + at + pattern.len()) as f64);
                2
            }
            None => {
                stack.push_nil();
                1
            }
        });
    }
    search(stack, subject, pattern, from, true)
}

fn match_(stack: Stack<'_>) -> NativeResult {
    let (subject, pattern) = (stack.text_argument(1)?, stack.text_argument(2)?);
    let from = start(stack, 3, subject.len())?;
    search(stack, subject, pattern, from, false)
}

fn search(stack: Stack<'_>, subject: &[u8], pattern: &[u8], from: usize, with_places: bool) -> NativeResult {
    let (pattern, is_anchored) = anchored(pattern);
    let mut search = Search::new(subject, pattern, |steps| stack.steps(steps));
    match search.find(from, is_anchored).map_err(|fault| raise(stack, fault))? {
        Some((start, end, captures)) if with_places => {
            stack.push_number(start as f64 + 1.0);
            stack.push_number(end as f64);
            Ok(2 + push_captures(stack, subject, None, &captures)?)
        }
        Some((start, end, captures)) => push_captures(stack, subject, Some((start, end)), &captures),
        None => {
            stack.push_nil();
            Ok(1)
        }
    }
}

/// Answers an iterator, whose upvalues are the subject, the pattern, and the place at which to go on.
fn gmatch(stack: Stack<'_>) -> NativeResult {
    stack.text_argument(1)?;
    stack.text_argument(2)?;
    stack.set_top(2);
    stack.push_number(0.0);
    stack.push_closure(native!(next_match), 3);
    Ok(1)
}

fn next_match(stack: Stack<'_>) -> NativeResult {
    let [subject, pattern, from] = [1, 2, 3].map(ffi::lua_upvalueindex);
    let at = stack.number(from) as usize;
    let (subject, pattern) = (stack.text(subject), visible(stack.text(pattern)));
    let mut search = Search::new(subject, pattern, |steps| stack.steps(steps));
    let found = search.find(at, false).map_err(|fault| raise(stack, fault))?;
    let Some((start, end, captures)) = found else { return Ok(0) };
    // Behind an empty match at least one byte on.
    stack.push_number((if end == start { end + 1 } else { end }) as f64);
    stack.replace(from);
    push_captures(stack, subject, Some((start, end)), &captures)
}

/// Bytes that are gathered in a block of Lua's, in a place of the stack: nothing of it has to be dropped when a function
/// that is called meanwhile raises an error.
#[derive(Clone, Copy)]
struct Gathered {
    place: c_int,
    block: *mut u8,
    length: usize,
    capacity: usize,
}

impl Gathered {
    const CAPACITY_MIN: usize = 256;

    /// Pushes an empty block.
    fn push(stack: Stack<'_>) -> Self {
        let block = stack.push_block(Self::CAPACITY_MIN);
        Self { place: stack.top(), block, length: 0, capacity: Self::CAPACITY_MIN }
    }

    fn add(&mut self, stack: Stack<'_>, bytes: &[u8]) -> Result<(), Raised> {
        stack.steps(bytes.len() / STEP_BYTES)?;
        if bytes.len() > self.capacity - self.length {
            let capacity = self.length.saturating_add(bytes.len()).max(self.capacity.saturating_mul(2));
            stack.has_memory(capacity)?;
            let block = stack.push_block(capacity);
            // SAFETY: both blocks have `length` bytes, and they are two.
            unsafe { block.copy_from_nonoverlapping(self.block, self.length) };
            stack.replace(self.place);
            (self.block, self.capacity) = (block, capacity);
        }
        // SAFETY: there is room for them, and they are not in the block: a script sees only copies of it.
        unsafe { self.block.add(self.length).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.length += bytes.len();
        Ok(())
    }

    /// Pushes them as a string.
    fn finish(self, stack: Stack<'_>) -> Result<(), Raised> {
        // SAFETY: `length` bytes have been written, and the block lives in its place of the stack.
        stack.push_result(unsafe { std::slice::from_raw_parts(self.block, self.length) })
    }
}

/// The progress of `gsub`. Its arguments stay in the places 1 to 3.
#[derive(Clone, Copy)]
struct Substitution {
    gathered: Gathered,
    at: usize,
    /// How much of the subject is gathered, or replaced, already.
    gathered_to: usize,
    count: usize,
    count_max: usize,
    is_anchored: bool,
    is_done: bool,
    /// The match whose replacement is looked for.
    matched: (usize, usize),
}

/// The request of `gsub` to Lua.
enum Need {
    Nothing,
    /// The function below that many arguments, to be called.
    Call(c_int),
    /// The table in the third place to be asked for the key on top.
    Index,
}

/// `string.gsub`. Functions and metamethods are called from here, since nothing is to be dropped if they raise.
unsafe extern "C-unwind" fn gsub(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls with a live state and 20 places; all that is kept while Lua runs is plain data. Pushed values
    // stay below the room of the first call: the block, and the results of a call.
    unsafe {
        let mut task = None;
        run_native(state, |stack| {
            task = Some(Substitution::begin(stack)?);
            Ok(0)
        });
        let Some(mut task) = task else { return 0 };
        while !task.is_done {
            let mut need = Need::Nothing;
            run_native(state, |stack| {
                need = task.advance(stack)?;
                Ok(0)
            });
            match need {
                Need::Nothing => continue,
                Need::Call(arguments) => ffi::lua_call(state, arguments, 1),
                Need::Index => ffi::lua_gettable_(state, 3),
            }
            run_native(state, |stack| {
                task.take_replacement(stack)?;
                Ok(0)
            });
        }
        run_native(state, |stack| task.finish(stack))
    }
}

impl Substitution {
    fn begin(stack: Stack<'_>) -> Result<Self, Raised> {
        let subject = stack.text_argument(1)?;
        let (_, is_anchored) = anchored(stack.text_argument(2)?);
        let count_max = stack.optional_integer(4, subject.len() as i64 + 1)? as c_int;
        if !matches!(stack.kind(3), Kind::Number | Kind::String | Kind::Function | Kind::Table) {
            return Err(stack.raise_argument(3, "string/function/table expected"));
        }
        stack.set_top(3);
        // For values that are pushed between two calls of Lua, of which each begins with the room of a function.
        let stack = stack.room_or_raise(2 * ROOM, "gsub")?;
        Ok(Self {
            gathered: Gathered::push(stack),
            at: 0,
            gathered_to: 0,
            count: 0,
            count_max: usize::try_from(count_max).unwrap_or(0),
            is_anchored,
            is_done: count_max <= 0,
            matched: (0, 0),
        })
    }

    /// Goes on to the next match, or to the end.
    fn advance(&mut self, stack: Stack<'_>) -> Result<Need, Raised> {
        let subject = stack.text(1);
        let (pattern, _) = anchored(stack.text(2));
        let mut search = Search::new(subject, pattern, |steps| stack.steps(steps));
        loop {
            let found = search.match_at(self.at).map_err(|fault| raise(stack, fault))?;
            let Some((end, captures)) = found else {
                self.go_on(subject, None);
                if self.is_done {
                    return Ok(Need::Nothing);
                }
                continue;
            };
            self.count += 1;
            self.matched = (self.at, end);
            self.gathered.add(stack, &subject[self.gathered_to..self.at])?;
            return match stack.kind(3) {
                Kind::Function => {
                    let stack =
                        stack.room_or_raise(captures.get().len() as c_int + 3, "too many captures")?;
                    stack.push_copy(3);
                    push_captures(stack, subject, Some(self.matched), &captures).map(Need::Call)
                }
                Kind::Table => {
                    match captures.get().first() {
                        Some(first) => push_capture(stack, subject, *first)?,
                        None => push_capture(stack, subject, Captured::Bytes(self.at, end))?,
                    }
                    Ok(Need::Index)
                }
                _ => {
                    self.add_text(stack, subject, &captures)?;
                    self.go_on(subject, Some(end));
                    Ok(Need::Nothing)
                }
            };
        }
    }

    /// Adds the third argument, in which `%1` stands for a capture, `%0` for the match, `%` for the character behind
    /// it.
    fn add_text(&mut self, stack: Stack<'_>, subject: &[u8], captures: &Captures) -> Result<(), Raised> {
        let mut text = stack.text(3);
        while let Some(escape) = memchr::memchr(b'%', text) {
            self.gathered.add(stack, &text[..escape])?;
            let (start, end) = self.matched;
            // As in the original, a string ends with a NUL.
            match text.get(escape + 1).copied().unwrap_or(0) {
                b'0' => self.gathered.add(stack, &subject[start..end])?,
                digit @ b'1'..=b'9' => {
                    let index = usize::from(digit - b'1');
                    match captures.get().get(index) {
                        None if index == 0 => self.gathered.add(stack, &subject[start..end])?,
                        None => return Err(stack.raise("invalid capture index")),
                        Some(Captured::Bytes(start, end)) => {
                            self.gathered.add(stack, &subject[*start..*end])?;
                        }
                        Some(Captured::Position(at)) => {
                            self.gathered.add(stack, (at + 1).to_string().as_bytes())?;
                        }
                        Some(Captured::Unfinished(_)) => return Err(stack.raise("unfinished capture")),
                    }
                }
                other => self.gathered.add(stack, &[other])?,
            }
            text = text.get(escape + 2..).unwrap_or_default();
        }
        self.gathered.add(stack, text)
    }

    /// Adds the result of a function or a table, which is on top; if that is nil or false, the match itself.
    fn take_replacement(&mut self, stack: Stack<'_>) -> Result<(), Raised> {
        let subject = stack.text(1);
        let (start, end) = self.matched;
        if !stack.boolean(-1) {
            self.gathered.add(stack, &subject[start..end])?;
        } else if matches!(stack.kind(-1), Kind::String | Kind::Number) {
            let text = stack.text(-1);
            self.gathered.add(stack, text)?;
        } else {
            let got = stack.type_name(-1);
            return Err(stack.raise(format!("invalid replacement value (a {got})")));
        }
        stack.pop(1);
        self.go_on(subject, Some(end));
        Ok(())
    }

    /// Goes on behind a match whose replacement is gathered, or past a byte that is none, which stays.
    fn go_on(&mut self, subject: &[u8], end: Option<usize>) {
        if let Some(end) = end {
            self.gathered_to = end;
        }
        match end.filter(|end| *end > self.at) {
            Some(end) => self.at = end,
            None if self.at < subject.len() => self.at += 1,
            None => self.is_done = true,
        }
        self.is_done |= self.is_anchored || self.count >= self.count_max;
    }

    fn finish(mut self, stack: Stack<'_>) -> NativeResult {
        let subject = stack.text(1);
        self.gathered.add(stack, &subject[self.gathered_to..])?;
        self.gathered.finish(stack)?;
        stack.push_number(self.count as f64);
        Ok(2)
    }
}
