//! Whether a script keeps to the keys that a call declares, proven from its compiled code.
//!
//! Abstract interpretation: every register holds the facts that are true of its value on all paths to an instruction,
//! until nothing changes. The proof is about the *capabilities*, the values through which keys are reached: the table
//! `redis`, its `call` and `pcall`, the table `KEYS`. The proof follows them through registers and into closures. If
//! one would go elsewhere (into a table, to a function), or if a command is called with something else than an
//! element of `KEYS` in the place of a key, it gives up.
//!
//! ```text
//!                 Unknown                anything, a power too: not to be used
//!         ┌──────────┼───────────┐
//!      Redis  Call  Keys  …     Other    a value that is no power
//!         │      │    │      ┌────┴────┐
//!         │      │    │     Key      Constant
//!         └──────┴────┴──────┼─────────┘
//!                           Dead         never to be read
//! ```
//!
//! That a value is `Other` says that it is not a power: this is the invariant which all rules keep. This
//! holds because the globals cannot be changed, and because `_G`, `load` and `loadstring`, which give
//! capabilities away, end the proof.

mod chunk;

use chunk::{Constant, Function};

/// A word of a command as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Word<'a> {
    /// These bytes.
    Text(&'a [u8]),
    /// A declared key.
    Declared,
    /// Anything.
    Other,
}

/// Decides of a command: its words, and the kind of all that follow, if there may be more.
pub type KeyAccess<'j> = &'j dyn Fn(&[Word<'_>], Option<Word<'_>>) -> bool;

/// Most times that an instruction is looked at, on average: more than that, and the proof gives up.
const VISITS_MAX: usize = 64;

/// Most registers that are kept at a time, of all instructions of a function and those around it: a function that large
/// is not proven.
const KEPT_MAX: usize = 1 << 20;

/// Most registers that are looked at in one proof.
const LOOKED_AT_MAX: usize = 1 << 26;

/// Whether a compiled script calls only commands that `key_access` accepts, for all keys and arguments.
pub(crate) fn holds(dump: &[u8], key_access: KeyAccess<'_>) -> bool {
    chunk::read(dump)
        .is_some_and(|main| check(&main, &[], Role::Main, key_access, &mut Effort::default()).is_some())
}

/// [`holds`] of a function that is called with a table of keys and a table of arguments. Values that it shares with
/// other functions may be anything.
pub(crate) fn holds_of_function(dump: &[u8], key_access: KeyAccess<'_>) -> bool {
    chunk::read(dump).is_some_and(|function| {
        let upvalues = vec![Value::Unknown; function.upvalues];
        check(&function, &upvalues, Role::Callback, key_access, &mut Effort::default()).is_some()
    })
}

/// The cost that a proof may still have.
struct Effort {
    kept: usize,
    looked_at: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { kept: KEPT_MAX, looked_at: LOOKED_AT_MAX }
    }
}

/// How a function is called, and its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// By the machine, without arguments: a script.
    Main,
    /// By the machine, with the keys first: a function of a library.
    Callback,
    /// By others.
    Inner,
}

/// The facts known of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Dead,
    Other,
    /// An element of `KEYS`, or nil.
    Key,
    /// A constant of the function.
    Constant(usize),
    /// `ipairs` or `pairs`.
    Iterate,
    /// The first result of `ipairs(KEYS)`.
    Iterator,
    /// `unpack`.
    Unpack,
    Redis,
    Call,
    Keys,
    Unknown,
}

impl Value {
    fn is_capability(self) -> bool {
        matches!(self, Self::Redis | Self::Call | Self::Keys | Self::Unknown)
    }

    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Dead, value) | (value, Self::Dead) => value,
            (one, other) if one == other => one,
            (one, other) if one.is_capability() || other.is_capability() => Self::Unknown,
            _ => Self::Other,
        }
    }
}

/// The facts known in front of an instruction.
#[derive(Debug, Clone, PartialEq)]
struct Registers {
    values: Vec<Value>,
    /// The value of a register that a closure has captured, which from then on must stay that.
    shown: Vec<Option<Value>>,
    /// The start of a list of values that reaches to the top of the stack, and their kind.
    list: Option<(usize, Value)>,
}

impl Registers {
    /// `None` if the proof has to give up.
    fn get(&self, register: usize) -> Option<Value> {
        self.values.get(register).copied().filter(|value| *value != Value::Dead)
    }

    /// A value that is not a power.
    fn harmless(&self, register: usize) -> Option<Value> {
        self.get(register).filter(|value| !value.is_capability())
    }

    /// Closures may change a register that they have captured: nothing more is known of it than the value that the
    /// closure assumes.
    fn set(&mut self, register: usize, value: Value) -> Option<()> {
        let value = match *self.shown.get(register)? {
            Some(Value::Other) if !value.is_capability() => Value::Other,
            Some(shown) if shown != value => return None,
            _ => value,
        };
        *self.values.get_mut(register)? = value;
        Some(())
    }

    /// Nothing from a register on is read before it is written.
    fn kill_from(&mut self, register: usize) {
        if let Some(values) = self.values.get_mut(register..) {
            values.fill(Value::Dead);
        }
    }

    /// Merges the facts of another path; returns whether that changes anything.
    fn join(&mut self, other: &Self) -> Option<bool> {
        let before = self.clone();
        for (value, other) in self.values.iter_mut().zip(&other.values) {
            *value = value.join(*other);
        }
        for (shown, other) in self.shown.iter_mut().zip(&other.shown) {
            match (*shown, *other) {
                (Some(one), Some(other)) if one != other => return None,
                (one, other) => *shown = one.or(other),
            }
        }
        if self.list != other.list {
            self.list = None;
        }
        Some(*self != before)
    }
}

/// Checks a function with the known facts of its upvalues, and those inside it. `None` if the proof
/// has to give up.
fn check(
    function: &Function,
    upvalues: &[Value],
    role: Role,
    key_access: KeyAccess<'_>,
    effort: &mut Effort,
) -> Option<()> {
    let registers = function.registers.max(function.parameters);
    let kept = function.code.len().checked_mul(registers.max(1))?;
    effort.kept = effort.kept.checked_sub(kept)?;
    // Parameters, and nil.
    let mut values = vec![Value::Other; registers];
    if role == Role::Callback && function.parameters > 0 {
        values[0] = Value::Keys;
    }
    let shown = vec![None; values.len()];
    let mut known: Vec<Option<Registers>> = vec![None; function.code.len()];
    *known.first_mut()? = Some(Registers { values, shown, list: None });
    let mut waiting = vec![0];
    let mut visits = 0;
    let step = Step { function, upvalues, role, key_access };
    while let Some(at) = waiting.pop() {
        visits += 1;
        if visits > VISITS_MAX * function.code.len() {
            return None;
        }
        effort.looked_at = effort.looked_at.checked_sub(registers.max(1))?;
        for (next, registers) in step.run(at, known[at].clone()?)? {
            let changed = match known.get_mut(next)? {
                Some(before) => before.join(&registers)?,
                place => {
                    *place = Some(registers);
                    true
                }
            };
            if changed {
                waiting.push(next);
            }
        }
    }
    // Closures, with the facts that are known for good of their captures.
    for (at, registers) in known.iter().enumerate().filter_map(|(at, known)| Some((at, known.as_ref()?))) {
        let instruction = function.code[at];
        if instruction.operation() == CLOSURE {
            let inner = function.functions.get(instruction.bx())?;
            let shown = step.captured(at, inner, registers)?;
            let shown: Vec<Value> = shown.into_iter().map(|(_, value)| value).collect();
            check(inner, &shown, Role::Inner, key_access, effort)?;
        }
    }
    effort.kept += kept;
    Some(())
}

const CLOSURE: u8 = 36;
/// In an operand that is a register or a constant: it is a constant.
const IS_CONSTANT: usize = 256;

/// A step of the interpretation.
struct Step<'f> {
    function: &'f Function,
    upvalues: &'f [Value],
    role: Role,
    key_access: KeyAccess<'f>,
}

impl Step<'_> {
    /// The targets of an instruction, and the facts known there. `None` if the proof has to give up.
    fn run(&self, at: usize, mut now: Registers) -> Option<Vec<(usize, Registers)>> {
        let instruction = self.function.code[at];
        let (a, b, c) = (instruction.a(), instruction.b(), instruction.c());
        let target = || at.checked_add_signed(instruction.jump() + 1);
        match instruction.operation() {
            // MOVE
            0 => now.set(a, now.get(b)?)?,
            // LOADK
            1 => now.set(a, Value::Constant(instruction.bx()))?,
            // LOADBOOL
            2 => {
                now.set(a, Value::Other)?;
                return Some(vec![(at + 1 + usize::from(c != 0), now)]);
            }
            // LOADNIL
            3 => (a..=b).try_for_each(|register| now.set(register, Value::Other))?,
            // GETUPVAL
            4 => now.set(a, *self.upvalues.get(b)?)?,
            // GETGLOBAL
            5 => now.set(a, self.global(instruction.bx())?)?,
            // GETTABLE
            6 => now.set(a, self.index(now.get(b)?, c)?)?,
            // SETGLOBAL raises.
            7 => return Some(Vec::new()),
            // SETUPVAL
            8 => {
                let (before, value) = (*self.upvalues.get(b)?, now.harmless(a)?);
                if before != Value::Other && before != value {
                    return None;
                }
            }
            // SETTABLE
            9 => {
                now.harmless(a)?;
                self.operand(&now, b)?;
                self.operand(&now, c)?;
            }
            // NEWTABLE
            10 => now.set(a, Value::Other)?,
            // SELF
            11 => {
                let object = now.harmless(b)?;
                now.set(a + 1, object)?;
                now.set(a, Value::Other)?;
            }
            // Arithmetic, on operands that may be constants: of a power it raises.
            12..=17 => now.set(a, Value::Other)?,
            // UNM, NOT, LEN
            18..=20 => now.set(a, Value::Other)?,
            // CONCAT
            21 => now.set(a, Value::Other)?,
            // JMP
            22 => return Some(vec![(target()?, now)]),
            // EQ, LT, LE, TEST
            23..=26 => return Some(vec![(at + 1, now.clone()), (at + 2, now)]),
            // TESTSET
            27 => {
                let skipped = now.clone();
                now.set(a, now.get(b)?)?;
                return Some(vec![(at + 1, now), (at + 2, skipped)]);
            }
            // CALL
            28 => self.call(&mut now, a, b, c)?,
            // TAILCALL: the return behind it returns the call's results.
            29 => self.call(&mut now, a, b, 0)?,
            // RETURN
            30 => {
                if self.role == Role::Inner {
                    let end = if b == 0 { now.list?.0 } else { a + b - 1 };
                    (a..end).try_for_each(|register| now.harmless(register).map(drop))?;
                }
                return Some(Vec::new());
            }
            // FORLOOP
            31 => {
                let mut inside = now.clone();
                inside.set(a + 3, Value::Other)?;
                inside.set(a, Value::Other)?;
                return Some(vec![(target()?, inside), (at + 1, now)]);
            }
            // FORPREP
            32 => {
                now.set(a, Value::Other)?;
                return Some(vec![(target()?, now)]);
            }
            // TFORLOOP
            33 => {
                let over_keys = now.get(a)? == Value::Iterator && now.get(a + 1)? == Value::Keys;
                if !over_keys {
                    (a..a + 3).try_for_each(|register| now.harmless(register).map(drop))?;
                }
                let ended = now.clone();
                for nth in 1..=c {
                    let value = if over_keys && nth == 2 { Value::Key } else { Value::Other };
                    now.set(a + 2 + nth, value)?;
                }
                now.set(a + 2, Value::Other)?;
                return Some(vec![(at + 1, now), (at + 2, ended)]);
            }
            // SETLIST
            34 => {
                now.harmless(a)?;
                let end = if b == 0 { now.list?.0 } else { a + 1 + b };
                (a + 1..end).try_for_each(|register| now.harmless(register).map(drop))?;
                now.list = None;
                // A count that does not fit stands in the place of the next instruction.
                return Some(vec![(at + 1 + usize::from(c == 0), now)]);
            }
            // CLOSE
            35 => {}
            CLOSURE => {
                let inner = self.function.functions.get(instruction.bx())?;
                for (register, value) in self.captured(at, inner, &now)? {
                    if let Some(register) = register {
                        match now.shown.get_mut(register)? {
                            Some(before) if *before != value => return None,
                            place => *place = Some(value),
                        }
                        if register != a {
                            now.set(register, value)?;
                        }
                    }
                }
                now.set(a, Value::Other)?;
                return Some(vec![(at + 1 + inner.upvalues, now)]);
            }
            // VARARG: of a function of a library, the keys may be among them.
            37 => {
                if self.role == Role::Callback && self.function.parameters == 0 {
                    return None;
                }
                if b == 0 {
                    now.kill_from(a);
                    now.list = Some((a, Value::Other));
                } else {
                    (a..a + b - 1).try_for_each(|register| now.set(register, Value::Other))?;
                }
            }
            _ => return None,
        }
        Some(vec![(at + 1, now)])
    }

    fn text(&self, constant: usize) -> Option<&[u8]> {
        match self.function.constants.get(constant)? {
            Constant::Text(text) => Some(text),
            _ => None,
        }
    }

    fn global(&self, name: usize) -> Option<Value> {
        Some(match self.text(name)? {
            b"redis" | b"server" => Value::Redis,
            b"KEYS" => Value::Keys,
            b"ipairs" | b"pairs" => Value::Iterate,
            b"unpack" => Value::Unpack,
            b"_G" | b"load" | b"loadstring" => return None,
            _ => Value::Other,
        })
    }

    /// An element of a table.
    fn index(&self, table: Value, key: usize) -> Option<Value> {
        match table {
            Value::Keys => Some(Value::Key),
            Value::Redis => {
                let name = self.text(key.checked_sub(IS_CONSTANT)?)?;
                Some(if matches!(name, b"call" | b"pcall") { Value::Call } else { Value::Other })
            }
            table => (!table.is_capability()).then_some(Value::Other),
        }
    }

    /// A register or a constant, which is not a power.
    fn operand(&self, now: &Registers, operand: usize) -> Option<()> {
        if operand < IS_CONSTANT { now.harmless(operand).map(drop) } else { Some(()) }
    }

    /// The captures of a closure: of each upvalue the register, if it is one of this function, and the value.
    fn captured(&self, at: usize, inner: &Function, now: &Registers) -> Option<Vec<(Option<usize>, Value)>> {
        let target = self.function.code[at].a();
        let sources = self.function.code.get(at + 1..at + 1 + inner.upvalues)?;
        let captured = sources.iter().map(|source| match source.operation() {
            // A function that knows itself by its name.
            0 if source.b() == target => Some((Some(target), Value::Other)),
            0 => match now.get(source.b())? {
                // The constants of a function are its own.
                Value::Constant(_) => Some((Some(source.b()), Value::Other)),
                value => Some((Some(source.b()), value)),
            },
            4 => Some((None, *self.upvalues.get(source.b())?)),
            _ => None,
        });
        captured.collect()
    }

    /// A call of the value in `a` with the values behind it.
    fn call(&self, now: &mut Registers, a: usize, b: usize, c: usize) -> Option<()> {
        let (end, list) = match b {
            0 => now.list.map(|(start, kind)| (start, Some(kind)))?,
            _ => (a + b, None),
        };
        let arguments: Vec<Value> = (a + 1..end).map(|register| now.get(register)).collect::<Option<_>>()?;
        let mut results = vec![Value::Other; c.saturating_sub(1)];
        let mut all = Value::Other;
        match (now.get(a)?, arguments.as_slice()) {
            (Value::Call, words) => {
                let numbers: Vec<String> = words.iter().map(|word| self.number(*word)).collect();
                let words: Vec<Word<'_>> = words
                    .iter()
                    .zip(&numbers)
                    .map(|(word, text)| self.word(*word, text))
                    .collect::<Option<_>>()?;
                let list = list.map(|kind| if kind == Value::Key { Word::Declared } else { Word::Other });
                if !(self.key_access)(&words, list) {
                    return None;
                }
            }
            (Value::Iterate, [Value::Keys]) if list.is_none() => {
                let answered = [Value::Iterator, Value::Keys, Value::Other];
                results.iter_mut().zip(answered).for_each(|(result, value)| *result = value);
                // A list of them would hide a power.
                if c == 0 {
                    return None;
                }
            }
            (Value::Unpack, [Value::Keys, bounds @ ..]) => {
                if bounds.iter().any(|bound| bound.is_capability()) {
                    return None;
                }
                results.fill(Value::Key);
                all = Value::Key;
            }
            (callee, arguments) => {
                if callee.is_capability() || arguments.iter().any(|argument| argument.is_capability()) {
                    return None;
                }
            }
        }
        now.kill_from(a);
        now.list = (c == 0).then_some((a, all));
        for (nth, value) in results.into_iter().enumerate() {
            now.set(a + nth, value)?;
        }
        Some(())
    }

    /// A whole number as a command reads it; empty for anything else.
    fn number(&self, value: Value) -> String {
        match value {
            Value::Constant(constant) => match self.function.constants.get(constant) {
                Some(Constant::Number(number)) if number.fract() == 0.0 && number.abs() < 1e15 => {
                    (*number as i64).to_string()
                }
                _ => String::new(),
            },
            _ => String::new(),
        }
    }

    fn word<'w>(&'w self, value: Value, number: &'w str) -> Option<Word<'w>> {
        match value {
            Value::Key => Some(Word::Declared),
            Value::Constant(constant) => Some(match self.function.constants.get(constant)? {
                Constant::Text(text) => Word::Text(text),
                Constant::Number(_) if !number.is_empty() => Word::Text(number.as_bytes()),
                _ => Word::Other,
            }),
            value => (!value.is_capability()).then_some(Word::Other),
        }
    }
}

#[cfg(test)]
mod tests;
