//! Reading an RDB file.

use std::{fmt, io, mem};

use dunlin_engine::{
    rdb::{
        HashTemplates, Input, ModuleAux, RdbError, Value, Version, is_stream_field, read_module_aux,
        read_value_of_file, skip_key_metadata,
    },
    value::Layout,
};

use super::{opcode, summed::SummedSource};

/// From this version on a file ends with a checksum.
const CHECKSUM_SINCE: u16 = 5;

/// The checks of a reader.
#[derive(Debug, Clone, Copy)]
pub struct ReadOptions {
    /// The checksum, if there is one, has to be right (`rdbchecksum`).
    pub checksum: bool,
    /// Versions that are not known are refused at once (`rdb-version-check strict`), not only if they
    /// hold something unknown.
    pub known_versions: bool,
}

/// Why a file could not be read, and where.
#[derive(Debug)]
pub struct ReadError {
    /// Bytes before the place.
    pub offset: u64,
    /// The key whose value was being read.
    pub key: Option<Vec<u8>>,
    /// The fault.
    pub cause: RdbError,
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "at byte {}", self.offset)?;
        if let Some(key) = &self.key {
            write!(out, ", in the value of key \"{}\"", key.escape_ascii())?;
        }
        write!(out, ": {}", self.cause)
    }
}

impl std::error::Error for ReadError {}

/// A part of a file.
#[derive(Debug)]
pub enum Item {
    /// An auxiliary field.
    Aux {
        /// Its name.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// A library of functions.
    Function(Vec<u8>),
    /// Data of a module.
    ModuleAux(ModuleAux),
    /// A key.
    Key {
        /// Its database.
        database: u64,
        /// Its name.
        key: Vec<u8>,
        /// Its value; `None` for a collection without elements, which is not a key.
        value: Option<Value>,
        /// When it expires, in unix milliseconds.
        expiry_ms: Option<i64>,
        /// Seconds since it was used.
        idle_seconds: Option<u64>,
    },
}

/// Reads an RDB file part by part, in memory for one key at a time.
pub struct Reader<R: io::Read> {
    input: Input<SummedSource<R>>,
    version: Version,
    options: ReadOptions,
    /// The database of the keys that come.
    database: u64,
    /// The templates of hashes so far.
    templates: HashTemplates,
    /// Kept from part to part: KeyDB has an auxiliary field (`mvcc-tstamp`) between a key and its expiry.
    attributes: Attributes,
}

/// The attributes of the next key.
#[derive(Default)]
struct Attributes {
    /// Names and contents of fields that are parts of the value.
    stream_fields: Vec<(Vec<u8>, Vec<u8>)>,
    expiry_ms: Option<i64>,
    idle_seconds: Option<u64>,
}

/// The part of a file before its data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// Names and values of auxiliary fields, in their order.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Nothing follows: neither keys nor libraries.
    pub is_all: bool,
}

impl Head {
    /// Reads it: a few hundred bytes, however long the file is. A checksum is not looked at.
    pub fn read<R: io::Read>(source: R) -> Result<Self, ReadError> {
        let mut reader = Reader::open(source, ReadOptions { checksum: false, known_versions: false })?;
        let mut head = Self::default();
        let end = head.read_fields(&mut reader.input);
        head.is_all =
            end.map_err(|cause| ReadError { offset: reader.offset(), key: None, cause })? == opcode::END;
        Ok(head)
    }

    /// The opcode behind the fields.
    fn read_fields<R: io::Read>(&mut self, input: &mut Input<SummedSource<R>>) -> Result<u8, RdbError> {
        loop {
            match input.byte()? {
                opcode::AUX => self.fields.push((input.string()?, input.string()?)),
                other => return Ok(other),
            }
        }
    }
}

impl<R: io::Read> Reader<R> {
    /// Begins with a file.
    pub fn open(source: R, options: ReadOptions) -> Result<Self, ReadError> {
        let mut input = Input::new(SummedSource::new(source, options.checksum));
        let version = version(&mut input, options.known_versions);
        let version = version.map_err(|cause| ReadError { offset: input.offset(), key: None, cause })?;
        let templates = HashTemplates::default();
        Ok(Self { input, version, options, database: 0, templates, attributes: Attributes::default() })
    }

    /// The version of the file.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Takes back buffers of keys and strings that are done with: the reader fills them next.
    pub fn recycle(&mut self, buffers: impl IntoIterator<Item = Vec<u8>>) {
        self.input.recycle(buffers);
    }

    /// The next part; `None` at the end, when the checksum was right. `layout` says how values are kept.
    pub fn next(&mut self, layout: Layout<'_>) -> Result<Option<Item>, ReadError> {
        let mut key = None;
        self.part(layout, &mut key).map_err(|cause| ReadError { offset: self.input.offset(), key, cause })
    }

    fn part(
        &mut self,
        layout: Layout<'_>,
        current_key: &mut Option<Vec<u8>>,
    ) -> Result<Option<Item>, RdbError> {
        loop {
            match self.input.byte()? {
                opcode::AUX => {
                    let (name, value) = (self.input.string()?, self.input.string()?);
                    if is_stream_field(&name) {
                        self.attributes.stream_fields.push((name, value));
                        continue;
                    }
                    return Ok(Some(Item::Aux { name, value }));
                }
                opcode::FUNCTION => return Ok(Some(Item::Function(self.input.string()?))),
                opcode::MODULE_AUX => {
                    return read_module_aux(&mut self.input).map(|aux| Some(Item::ModuleAux(aux)));
                }
                opcode::SELECT => self.database = self.input.length()?,
                opcode::RESIZE => {
                    self.input.length()?;
                    self.input.length()?;
                }
                opcode::SLOT_INFO => {
                    self.input.length()?;
                    self.input.length()?;
                    self.input.length()?;
                }
                opcode::EXPIRY_MS => self.attributes.expiry_ms = Some(self.input.milliseconds()?),
                opcode::EXPIRY_S => {
                    let seconds = i32::from_le_bytes(self.input.array()?);
                    self.attributes.expiry_ms = Some(i64::from(seconds) * 1000);
                }
                opcode::IDLE => self.attributes.idle_seconds = Some(self.input.length()?),
                opcode::FREQUENCY => {
                    self.input.byte()?;
                }
                opcode::FUNCTION_PRE_GA => {
                    return Err(unsupported("functions as release candidates of Redis 7.0 wrote them"));
                }
                opcode::KEY_METADATA if matches!(self.version, Version::Redis(_)) => {
                    skip_key_metadata(&mut self.input)?;
                }
                opcode::HASH_TEMPLATE if matches!(self.version, Version::Redis(_)) => {
                    self.templates.read(&mut self.input)?;
                }
                opcode::SLOT_IMPORT => {
                    return Err(unsupported("a cluster's slot that was on its way to another node"));
                }
                opcode::END => {
                    self.check_sum()?;
                    return Ok(None);
                }
                type_number => {
                    let key = self.input.recycled_string()?;
                    let Attributes { stream_fields, expiry_ms, idle_seconds } =
                        mem::take(&mut self.attributes);
                    let value = match self.value(type_number, &stream_fields, layout) {
                        Ok(value) => Some(value),
                        Err(RdbError::Empty) => None,
                        Err(error) => {
                            *current_key = Some(key);
                            return Err(error);
                        }
                    };
                    let database = self.database;
                    return Ok(Some(Item::Key { database, key, value, expiry_ms, idle_seconds }));
                }
            }
        }
    }

    /// Reads the value of a key, a stream's with what its fields say.
    fn value(
        &mut self,
        type_number: u8,
        stream_fields: &[(Vec<u8>, Vec<u8>)],
        layout: Layout<'_>,
    ) -> Result<Value, RdbError> {
        let mut value =
            read_value_of_file(type_number, self.version, &self.templates, &mut self.input, layout)?;
        for (name, contents) in stream_fields {
            value.adopt_field(name, contents)?;
        }
        Ok(value)
    }

    fn check_sum(&mut self) -> Result<(), RdbError> {
        if matches!(self.version, Version::Redis(version) if version < CHECKSUM_SINCE) {
            return Ok(());
        }
        let computed = self.input.source().checksum();
        let stated = u64::from_le_bytes(self.input.array()?);
        if self.options.checksum && stated != 0 && computed != Some(stated) {
            return Err(RdbError::Corrupt(
                "the checksum is wrong: the file has changed since it was written",
            ));
        }
        Ok(())
    }
}

fn version<R: io::Read>(input: &mut Input<SummedSource<R>>, known_only: bool) -> Result<Version, RdbError> {
    let magic = input.array()?;
    Version::from_magic(&magic, !known_only).ok_or_else(|| {
        if magic.starts_with(b"REDIS") || magic.starts_with(b"VALKEY") {
            let (text, known) = (magic.escape_ascii(), Version::known());
            let remedy = match known_only {
                true => "rdb-version-check relaxed reads it as far as it holds what is known; otherwise a newer Dunlin does",
                false => "it is none of a future version either",
            };
            RdbError::Unsupported(format!(
                "the file begins with \"{text}\", a version that is not known (known are {known}): {remedy}"
            ))
        } else {
            RdbError::Corrupt("the file does not begin like an RDB file")
        }
    })
}

fn unsupported(what: &str) -> RdbError {
    RdbError::Unsupported(format!("the file holds {what}, which cannot be read here"))
}
