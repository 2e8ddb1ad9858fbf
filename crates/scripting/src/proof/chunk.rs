//! Compiled Lua 5.1, as `lua_dump` writes it on this machine: the parts that a proof reads.

/// A function.
#[derive(Debug, Default)]
pub(super) struct Function {
    pub(super) upvalues: usize,
    pub(super) parameters: usize,
    /// Registers that it uses.
    pub(super) registers: usize,
    pub(super) code: Vec<Instruction>,
    pub(super) constants: Vec<Constant>,
    pub(super) functions: Vec<Function>,
}

/// A constant; of the kinds that no proof looks at, only that it is one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Constant {
    Other,
    Number(f64),
    Text(Vec<u8>),
}

/// An instruction: `B:9 │ C:9 │ A:8 │ operation:6`, or `Bx:18` in place of B and C.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instruction(u32);

impl Instruction {
    pub(super) fn operation(self) -> u8 {
        (self.0 & 0x3f) as u8
    }

    pub(super) fn a(self) -> usize {
        (self.0 >> 6 & 0xff) as usize
    }

    pub(super) fn b(self) -> usize {
        (self.0 >> 23) as usize
    }

    pub(super) fn c(self) -> usize {
        (self.0 >> 14 & 0x1ff) as usize
    }

    pub(super) fn bx(self) -> usize {
        (self.0 >> 14) as usize
    }

    /// How far it jumps from the next instruction.
    pub(super) fn jump(self) -> isize {
        self.bx() as isize - 0x1_ffff
    }
}

/// Reads a dump; `None` if it is not one of this machine's.
pub(super) fn read(dump: &[u8]) -> Option<Function> {
    const HEADER: [u8; 12] = [0x1b, b'L', b'u', b'a', 0x51, 0, 1, 4, 8, 4, 8, 0];
    let mut reader = Reader { rest: dump.strip_prefix(&HEADER)? };
    reader.function(0)
}

/// Deepest nesting of functions; Lua's own is 200.
const DEPTH_MAX: usize = 200;

struct Reader<'d> {
    rest: &'d [u8],
}

impl<'d> Reader<'d> {
    fn take(&mut self, count: usize) -> Option<&'d [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn int(&mut self) -> Option<usize> {
        let bytes = self.take(4)?.try_into().ok()?;
        usize::try_from(i32::from_ne_bytes(bytes)).ok()
    }

    /// A string with its NUL, which is not given.
    fn string(&mut self) -> Option<&'d [u8]> {
        let length = u64::from_ne_bytes(self.take(8)?.try_into().ok()?);
        match usize::try_from(length).ok()?.checked_sub(1) {
            None => Some(b""),
            Some(length) => {
                let text = self.take(length)?;
                self.take(1)?;
                Some(text)
            }
        }
    }

    fn function(&mut self, depth: usize) -> Option<Function> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.string()?;
        self.int()?;
        self.int()?;
        let mut function = Function {
            upvalues: usize::from(self.byte()?),
            parameters: usize::from(self.byte()?),
            ..Function::default()
        };
        self.byte()?;
        function.registers = usize::from(self.byte()?);
        for _ in 0..self.int()? {
            let word = self.take(4)?.try_into().ok()?;
            function.code.push(Instruction(u32::from_ne_bytes(word)));
        }
        for _ in 0..self.int()? {
            function.constants.push(match self.byte()? {
                0 => Constant::Other,
                1 => {
                    self.byte()?;
                    Constant::Other
                }
                3 => Constant::Number(f64::from_ne_bytes(self.take(8)?.try_into().ok()?)),
                4 => Constant::Text(self.string()?.to_vec()),
                _ => return None,
            });
        }
        for _ in 0..self.int()? {
            let inner = self.function(depth + 1)?;
            function.functions.push(inner);
        }
        // Lines, local variables and names of upvalues, for debuggers.
        for _ in 0..self.int()? {
            self.int()?;
        }
        for _ in 0..self.int()? {
            self.string()?;
            self.int()?;
            self.int()?;
        }
        for _ in 0..self.int()? {
            self.string()?;
        }
        Some(function)
    }
}
