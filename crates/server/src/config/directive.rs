//! A row of the table of directives, and what follows from its kind: how a value is read, checked,
//! printed and described. The texts of refusals are Redis's, since clients match on them.

use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::events::{self, KeyspaceEvents};
use super::settings::Config;
use super::units::{parse_integer, parse_memory, parse_octal, print_memory};
use super::values::{
    DatabaseLimits, MemoryShare, OutputBufferLimit, OutputBufferLimits, PeerUser, PrimaryAddress, SavePoint,
    Secret, ShutdownFlags,
};
use super::words;

/// Numbers of databases that may have a limit.
const DATABASES_END: usize = 1 << 31;
/// Addresses in `bind` at most, as in Redis.
pub(super) const BIND_ADDRESSES_MAX: usize = 16;
/// Words of a list at most.
const WORDS_MAX: usize = 256;
/// Words of `unixsocket-user` at most: they are looked through for each connection.
const PEER_USERS_MAX: usize = 256;
/// Percentiles at most: each one is a line of INFO latencystats.
const PERCENTILES_MAX: usize = 64;

/// A directive. Everything else (files, flags, CONFIG, help, documentation) derives from it.
pub struct Directive {
    /// Lowercase, words joined by `-`.
    pub name: &'static str,
    /// Other names for the same value.
    pub aliases: &'static [&'static str],
    /// Its section in the help.
    pub group: Group,
    /// Its type, its limits and its field of [`Config`].
    pub(super) kind: Kind,
    /// The default as a configuration file would have it after the name.
    pub default: &'static str,
    /// When its value can change.
    pub change: Change,
    /// Its effect, for --help and docs/configuration.md: sentences, the unit included.
    pub doc: &'static str,
    /// The rule that the kind cannot express: refuses a value, or settles it within bounds.
    pub(super) settle: fn(&mut Config) -> Result<(), &'static str>,
}

/// Why a directive cannot have a value: Redis's text without a prefix, if Redis has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueError {
    /// The value is not of the directive's kind.
    Invalid(String),
    /// The value is good but asks for what this version lacks; the text says what to do.
    Unsupported(&'static str),
}

impl fmt::Display for ValueError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(reason) => out.write_str(reason),
            Self::Unsupported(reason) => out.write_str(reason),
        }
    }
}

impl std::error::Error for ValueError {}

impl From<String> for ValueError {
    fn from(reason: String) -> Self {
        Self::Invalid(reason)
    }
}

/// Groups of directives, in the order of the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Addresses and sockets.
    Network,
    /// Limits of connections.
    Clients,
    /// Permissions.
    Security,
    /// Memory, expiry, freeing.
    Memory,
    /// Process, files, threads.
    Process,
    /// Log of the server, of slow commands, of latency.
    Monitoring,
    /// Files that survive a restart.
    Persistence,
    /// Primaries and replicas.
    Replication,
    /// Nodes of a cluster.
    Cluster,
    /// Encryption, and certificates.
    Tls,
}

impl Group {
    /// All groups, in the order of the help.
    pub const ALL: [Self; 10] = [
        Self::Network,
        Self::Clients,
        Self::Security,
        Self::Memory,
        Self::Process,
        Self::Monitoring,
        Self::Persistence,
        Self::Replication,
        Self::Cluster,
        Self::Tls,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Network => "Network",
            Self::Clients => "Clients",
            Self::Security => "Security",
            Self::Memory => "Memory and expiry",
            Self::Process => "Process",
            Self::Monitoring => "Logs and monitoring",
            Self::Persistence => "Persistence",
            Self::Replication => "Replication",
            Self::Cluster => "Cluster",
            Self::Tls => "TLS",
        }
    }
}

/// When a directive's value can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Any time, by CONFIG SET.
    Anytime,
    /// By CONFIG SET from clients that `enable-protected-configs` allows.
    Protected,
    /// Only at start.
    AtStart,
}

/// How a kind reaches its field.
#[derive(Clone, Copy)]
pub(super) struct Field<T: 'static> {
    pub get: fn(&Config) -> &T,
    pub get_mut: fn(&mut Config) -> &mut T,
}

/// An integer field of any width; the limits of the kind fit it.
#[derive(Clone, Copy)]
pub(super) struct Number {
    pub get: fn(&Config) -> i64,
    pub set: fn(&mut Config, i64),
}

/// The type of a directive's value.
pub(super) enum Kind {
    /// `yes` or `no`.
    Flag(Field<bool>),
    /// An integer from `min` to `max`, both included.
    Integer { field: Number, min: i64, max: i64 },
    /// Bytes, with a suffix if wanted.
    Memory { field: Field<u64>, min: u64, max: u64 },
    /// Bytes, or percent of `maxmemory`.
    Share(Field<MemoryShare>),
    /// A choice of `words`; the field is the index into them.
    Choice { words: &'static [&'static str], get: fn(&Config) -> usize, set: fn(&mut Config, usize) },
    /// Permission bits of a file, in octal.
    FileMode(Field<u32>),
    /// A path; empty for none.
    Path(Field<PathBuf>),
    /// A path of a file or directory that is read whenever the directive is set, to the same path too.
    File(Field<PathBuf>),
    /// Text of one line.
    Text(Field<String>),
    /// Words of plain text.
    Words(Field<Vec<String>>),
    /// Users by the process at the other end of a Unix socket.
    PeerUsers(Field<Vec<PeerUser>>),
    /// Host and port; empty, or `no one`, for none.
    Primary(Field<Option<PrimaryAddress>>),
    /// Bytes that no log shows.
    Secret(Field<Secret>),
    /// Host addresses, [`BIND_ADDRESSES_MAX`] at most.
    Addresses(Field<Vec<String>>),
    /// Percentages.
    Percentiles(Field<Vec<f64>>),
    /// `default`, or several of the flags of SHUTDOWN.
    Shutdown(Field<ShutdownFlags>),
    /// Groups of class, hard limit, soft limit, seconds. Classes left out keep their limits.
    OutputLimits(Field<OutputBufferLimits>),
    /// Letters of classes of keyspace events.
    Events(Field<KeyspaceEvents>),
    /// Pairs of seconds and changes.
    SavePoints(Field<Vec<SavePoint>>),
    /// Numbers of databases, each with `:` and bytes. Databases left out keep their limits.
    DatabaseLimits(Field<DatabaseLimits>),
}

macro_rules! field {
    ($name:ident) => {
        $crate::config::directive::Field { get: |config| &config.$name, get_mut: |config| &mut config.$name }
    };
}

/// The kind has checked the range, so that the conversions keep the value.
macro_rules! number {
    ($name:ident) => {
        $crate::config::directive::Number {
            get: |config| config.$name as i64,
            set: |config, value| config.$name = value as _,
        }
    };
}

macro_rules! choice {
    ($name:ident: $type:ty) => {
        $crate::config::directive::Kind::Choice {
            words: <$type as $crate::config::values::Words>::WORDS,
            get: |config| {
                let is_set = |value: &$type| *value == config.$name;
                <$type as $crate::config::values::Words>::VALUES.iter().position(is_set).unwrap_or_default()
            },
            set: |config, index| {
                if let Some(value) = <$type as $crate::config::values::Words>::VALUES.get(index) {
                    config.$name = *value;
                }
            },
        }
    };
}

pub(super) use {choice, field, number};

const SHUTDOWN_WORDS: &[&str] = &["default", "save", "nosave", "now", "force"];

impl Directive {
    /// Whether logs and error messages must not show its value.
    pub fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret(_))
    }

    /// Whether setting it has an effect though it has that value already.
    pub(super) fn is_reread(&self) -> bool {
        matches!(self.kind, Kind::File(_))
    }

    /// Whether it takes several words.
    pub fn takes_several_words(&self) -> bool {
        matches!(
            self.kind,
            Kind::Addresses(_)
                | Kind::Percentiles(_)
                | Kind::Shutdown(_)
                | Kind::OutputLimits(_)
                | Kind::SavePoints(_)
                | Kind::DatabaseLimits(_)
                | Kind::Primary(_)
                | Kind::PeerUsers(_)
                | Kind::Words(_)
        )
    }

    /// Its name and its aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Reads the words that follow its name in a file or a flag into `config`; on an error, the
    /// field is as before.
    pub fn assign(&self, values: &[Vec<u8>], config: &mut Config) -> Result<(), ValueError> {
        let mut changed = config.clone();
        match values {
            // A single empty word is how files spell "none".
            [value] if self.takes_several_words() && value.is_empty() => self.kind.read(&[], &mut changed)?,
            values if self.takes_several_words() && !values.is_empty() => {
                self.kind.read(values, &mut changed)?;
            }
            [_] => self.kind.read(values, &mut changed)?,
            // An empty list on a command line looks so: `--save --port 7000`.
            [] if matches!(self.kind, Kind::SavePoints(_)) => self.kind.read(&[], &mut changed)?,
            _ => return Err("wrong number of arguments".to_owned().into()),
        }
        (self.settle)(&mut changed).map_err(ValueError::Unsupported)?;
        *config = changed;
        Ok(())
    }

    /// Reads the one argument that CONFIG SET has for it.
    pub fn assign_argument(&self, value: &[u8], config: &mut Config) -> Result<(), ValueError> {
        if !self.takes_several_words() {
            return self.assign(&[value.to_vec()], config);
        }
        let blank = |byte: &u8| byte.is_ascii_whitespace();
        let mut values: Vec<_> =
            value.split(blank).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect();
        if values.is_empty() {
            values.push(Vec::new());
        }
        self.assign(&values, config)
    }

    /// Writes its default.
    pub(super) fn assign_default(&self, config: &mut Config) {
        let values = words::split(self.default.as_bytes()).expect("the table's defaults split");
        self.assign(&values, config).expect("the table's defaults are valid");
    }

    /// Its value as CONFIG GET shows it.
    pub fn print(&self, config: &Config) -> Vec<u8> {
        match &self.kind {
            Kind::Memory { field, .. } => (field.get)(config).to_string().into_bytes(),
            Kind::Share(field) => match *(field.get)(config) {
                MemoryShare::Bytes(bytes) => bytes.to_string().into_bytes(),
                MemoryShare::Percent(percent) => format!("{percent}%").into_bytes(),
            },
            Kind::OutputLimits(field) => {
                print_output_limits(*(field.get)(config), "slave", |bytes| bytes.to_string())
            }
            _ => self.kind.words(config).join(&b' '),
        }
    }

    /// Its value as the words that [`Directive::assign`] reads; none for an empty list.
    pub fn words(&self, config: &Config) -> Vec<Vec<u8>> {
        self.kind.words(config)
    }

    /// Whether two configurations agree on it.
    pub fn is_same(&self, one: &Config, other: &Config) -> bool {
        self.kind.words(one) == self.kind.words(other)
    }

    /// The values that it takes, for people.
    pub fn values(&self) -> String {
        match &self.kind {
            Kind::Flag(_) => "yes or no".to_owned(),
            Kind::Integer { min, max: i64::MAX, .. } => format!("integer, {min} or more"),
            Kind::Integer { min, max, .. } if *max == i64::from(i32::MAX) => {
                format!("integer, {min} or more")
            }
            Kind::Integer { min, max, .. } => format!("integer, {min} to {max}"),
            Kind::Memory { min: 0, .. } => "bytes".to_owned(),
            Kind::Memory { min, .. } => format!("bytes, {} or more", print_memory(*min)),
            Kind::Share(_) => "bytes, or 0% to 100%".to_owned(),
            Kind::Choice { words, .. } => words.join(", "),
            Kind::FileMode(_) => "octal, 0 to 777".to_owned(),
            Kind::Path(_) | Kind::File(_) => "path".to_owned(),
            Kind::Words(_) => "words".to_owned(),
            Kind::PeerUsers(_) => "words of: uid=NUMBER:USER or gid=NUMBER:USER".to_owned(),
            Kind::Secret(_) | Kind::Text(_) => "text".to_owned(),
            Kind::Primary(_) => "host and port".to_owned(),
            Kind::Addresses(_) => format!("up to {BIND_ADDRESSES_MAX} addresses"),
            Kind::Percentiles(_) => "numbers, 0 to 100".to_owned(),
            Kind::Shutdown(_) => SHUTDOWN_WORDS.join(", "),
            Kind::OutputLimits(_) => "groups of: class, bytes, bytes, seconds".to_owned(),
            Kind::Events(_) => format!("letters out of {}", events::LETTERS),
            Kind::SavePoints(_) => "pairs of: seconds, changes".to_owned(),
            Kind::DatabaseLimits(_) => "database:bytes, several".to_owned(),
        }
    }

    /// The only words that its value may be, if it is one of a few.
    pub(super) fn choices(&self) -> Option<&'static [&'static str]> {
        match &self.kind {
            Kind::Flag(_) => Some(&["yes", "no"]),
            Kind::Choice { words, .. } => Some(words),
            _ => None,
        }
    }

    /// The values, with units, for an operator who has just got them wrong.
    pub(super) fn values_and_units(&self) -> String {
        match &self.kind {
            Kind::Memory { .. } | Kind::Share(_) | Kind::OutputLimits(_) | Kind::DatabaseLimits(_) => {
                format!(
                    "{}; units: kb, mb, gb (powers of 1024), k, m, g (powers of 1000), none for bytes",
                    self.values()
                )
            }
            _ => self.values(),
        }
    }

    /// A short name of the type, for the usage line of a flag.
    pub fn value_name(&self) -> &'static str {
        match &self.kind {
            Kind::Flag(_) => "yes|no",
            Kind::Integer { .. } => "number",
            Kind::Memory { .. } | Kind::Share(_) => "bytes",
            Kind::Choice { .. } => "word",
            Kind::FileMode(_) => "octal",
            Kind::Path(_) | Kind::File(_) => "path",
            Kind::PeerUsers(_) => "uid",
            Kind::Words(_) => "word",
            Kind::Secret(_) | Kind::Text(_) => "text",
            Kind::Primary(_) => "host",
            Kind::Addresses(_) => "address",
            Kind::Percentiles(_) => "number",
            Kind::Shutdown(_) => "word",
            Kind::OutputLimits(_) => "limit",
            Kind::Events(_) => "letters",
            Kind::SavePoints(_) => "number",
            Kind::DatabaseLimits(_) => "limit",
        }
    }
}

impl Kind {
    /// Kinds of a single value get exactly one word.
    fn read(&self, values: &[Vec<u8>], config: &mut Config) -> Result<(), String> {
        let first = values.first().map(Vec::as_slice).unwrap_or_default();
        match self {
            Self::Flag(field) => {
                *(field.get_mut)(config) = match first.to_ascii_lowercase().as_slice() {
                    b"yes" => true,
                    b"no" => false,
                    _ => return Err("argument must be 'yes' or 'no'".to_owned()),
                };
            }
            Self::Integer { field, min, max } => {
                let value = parse_integer(first).ok_or("argument couldn't be parsed into an integer")?;
                if !(min..=max).contains(&&value) {
                    return Err(format!("argument must be between {min} and {max} inclusive"));
                }
                (field.set)(config, value);
            }
            Self::Memory { field, min, max } => {
                let value = parse_memory(first).ok_or("argument must be a memory value")?;
                if !(min..=max).contains(&&value) {
                    return Err(format!("argument must be between {min} and {max} inclusive"));
                }
                *(field.get_mut)(config) = value;
            }
            Self::Share(field) => {
                let percent = first.strip_suffix(b"%").and_then(parse_integer);
                *(field.get_mut)(config) = match (percent, parse_memory(first)) {
                    (Some(percent @ 0..=100), _) => MemoryShare::Percent(percent as u8),
                    (Some(101..), _) => {
                        return Err("percentage argument must be less or equal to 100".to_owned());
                    }
                    (_, Some(bytes)) => MemoryShare::Bytes(bytes),
                    _ => return Err("argument must be a memory or percent value".to_owned()),
                };
            }
            Self::Choice { words, set, .. } => {
                set(config, position(words, first).ok_or_else(|| one_of(words))?);
            }
            Self::FileMode(field) => {
                let mode = parse_octal(first).ok_or("argument couldn't be parsed as an octal number")?;
                if mode > 0o777 {
                    return Err("argument must be between 0 and 777 inclusive".to_owned());
                }
                *(field.get_mut)(config) = mode;
            }
            Self::Path(field) | Self::File(field) => {
                if first.contains(&0) {
                    return Err("a path cannot contain a zero byte".to_owned());
                }
                *(field.get_mut)(config) = std::ffi::OsString::from_vec(first.to_vec()).into();
            }
            Self::Text(field) => {
                let text = std::str::from_utf8(first).ok();
                let text = text.filter(|text| !text.chars().any(char::is_control));
                *(field.get_mut)(config) = text.ok_or("argument must be plain text of one line")?.to_owned();
            }
            Self::PeerUsers(field) => *(field.get_mut)(config) = read_peer_users(values)?,
            Self::Words(field) => *(field.get_mut)(config) = read_words(values)?,
            Self::Primary(field) => *(field.get_mut)(config) = read_primary(values)?,
            Self::Secret(field) => *(field.get_mut)(config) = Secret(first.to_vec()),
            Self::Addresses(field) => {
                if values.len() > BIND_ADDRESSES_MAX {
                    return Err("Too many bind addresses specified.".to_owned());
                }
                let text = |word: &Vec<u8>| String::from_utf8(word.clone());
                *(field.get_mut)(config) = values
                    .iter()
                    .map(text)
                    .collect::<Result<_, _>>()
                    .map_err(|_| "an address must be plain text".to_owned())?;
            }
            Self::Percentiles(field) => *(field.get_mut)(config) = read_percentiles(values)?,
            Self::Shutdown(field) => *(field.get_mut)(config) = read_shutdown(values)?,
            Self::OutputLimits(field) => read_output_limits(values, (field.get_mut)(config))?,
            Self::Events(field) => {
                let invalid = || format!("Invalid event class character. Use '{}'.", events::LETTERS);
                *(field.get_mut)(config) = KeyspaceEvents::parse(first).ok_or_else(invalid)?;
            }
            Self::SavePoints(field) => *(field.get_mut)(config) = read_save_points(values)?,
            Self::DatabaseLimits(field) => read_database_limits(values, (field.get_mut)(config))?,
        }
        Ok(())
    }

    fn words(&self, config: &Config) -> Vec<Vec<u8>> {
        let one = |word: &[u8]| vec![word.to_vec()];
        match self {
            Self::Flag(field) => one(if *(field.get)(config) { b"yes" } else { b"no" }),
            Self::Integer { field, .. } => one((field.get)(config).to_string().as_bytes()),
            Self::Memory { field, .. } => one(print_memory(*(field.get)(config)).as_bytes()),
            Self::Share(field) => match *(field.get)(config) {
                MemoryShare::Bytes(bytes) => one(print_memory(bytes).as_bytes()),
                MemoryShare::Percent(percent) => one(format!("{percent}%").as_bytes()),
            },
            Self::Choice { words, get, .. } => {
                one(words.get(get(config)).copied().unwrap_or_default().as_bytes())
            }
            Self::FileMode(field) => one(format!("{:o}", (field.get)(config)).as_bytes()),
            Self::Path(field) | Self::File(field) => one((field.get)(config).as_os_str().as_bytes()),
            Self::PeerUsers(field) => (field.get)(config).iter().map(PeerUser::print).collect(),
            Self::Words(field) => (field.get)(config).iter().map(|word| word.clone().into_bytes()).collect(),
            Self::Secret(field) => one((field.get)(config).bytes()),
            Self::Text(field) => one((field.get)(config).as_bytes()),
            Self::Primary(field) => (field.get)(config)
                .iter()
                .flat_map(|primary| [primary.host.clone(), primary.port.to_string()])
                .map(String::into_bytes)
                .collect(),
            Self::Addresses(field) => {
                (field.get)(config).iter().map(|word| word.clone().into_bytes()).collect()
            }
            Self::Percentiles(field) => {
                (field.get)(config).iter().map(|percent| percent.to_string().into_bytes()).collect()
            }
            Self::Shutdown(field) => shutdown_words(*(field.get)(config)),
            Self::OutputLimits(field) => print_output_limits(*(field.get)(config), "replica", print_memory)
                .split(|byte| *byte == b' ')
                .map(<[u8]>::to_vec)
                .collect(),
            Self::Events(field) => one(&(field.get)(config).print()),
            Self::DatabaseLimits(field) => (field.get)(config)
                .iter()
                .map(|(database, bytes)| format!("{database}:{}", print_memory(bytes)).into_bytes())
                .collect(),
            Self::SavePoints(field) => {
                let both = |point: &SavePoint| [point.seconds, point.changes];
                (field.get)(config)
                    .iter()
                    .flat_map(both)
                    .map(|number| number.to_string().into_bytes())
                    .collect()
            }
        }
    }
}

/// Changes the limits that are named; no word removes all.
fn read_database_limits(values: &[Vec<u8>], limits: &mut DatabaseLimits) -> Result<(), String> {
    if values.is_empty() {
        limits.clear();
    }
    for value in values {
        let colon = value.iter().position(|byte| *byte == b':').unwrap_or(value.len());
        let (database, bytes) = value.split_at(colon);
        let database = parse_integer(database).and_then(|database| usize::try_from(database).ok());
        let bytes = bytes.strip_prefix(b":").and_then(parse_memory);
        match (database, bytes) {
            (Some(database @ 0..DATABASES_END), Some(bytes)) => limits.set(database, bytes),
            _ => return Err("argument must be the number of a database, ':' and a memory value".to_owned()),
        }
    }
    Ok(())
}

fn position(words: &[&str], word: &[u8]) -> Option<usize> {
    words.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(word))
}

fn one_of(words: &[&str]) -> String {
    format!("argument(s) must be one of the following: {}", words.join(", "))
}

fn read_primary(values: &[Vec<u8>]) -> Result<Option<PrimaryAddress>, String> {
    match values {
        [] => Ok(None),
        [no, one] if no.eq_ignore_ascii_case(b"no") && one.eq_ignore_ascii_case(b"one") => Ok(None),
        [host, port] => {
            let host = std::str::from_utf8(host).ok().filter(|host| !host.chars().any(char::is_whitespace));
            let port = parse_integer(port).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
            match (host, port) {
                (Some(host), Some(port)) => Ok(Some(PrimaryAddress { host: host.to_owned(), port })),
                (None, _) => Err("a host is a name or an address".to_owned()),
                (_, None) => Err("Invalid master port".to_owned()),
            }
        }
        _ => Err("wrong number of arguments".to_owned()),
    }
}

fn read_words(values: &[Vec<u8>]) -> Result<Vec<String>, String> {
    if values.len() > WORDS_MAX {
        return Err(format!("no more than {WORDS_MAX} words"));
    }
    let text = |word: &Vec<u8>| String::from_utf8(word.clone());
    values.iter().map(text).collect::<Result<_, _>>().map_err(|_| "a word must be plain text".to_owned())
}

fn read_peer_users(values: &[Vec<u8>]) -> Result<Vec<PeerUser>, String> {
    if values.len() > PEER_USERS_MAX {
        return Err(format!("no more than {PEER_USERS_MAX} users"));
    }
    values.iter().map(|value| PeerUser::parse(value)).collect()
}

fn read_percentiles(values: &[Vec<u8>]) -> Result<Vec<f64>, String> {
    const NAME: &str = "latency-tracking-info-percentiles";
    if values.len() > PERCENTILES_MAX {
        return Err(format!("{NAME} takes up to {PERCENTILES_MAX} parameters"));
    }
    let mut percentiles = Vec::with_capacity(values.len());
    for value in values {
        let parsed = std::str::from_utf8(value).ok().and_then(|text| text.parse::<f64>().ok());
        let percent = parsed.ok_or_else(|| format!("Invalid {NAME} parameters"))?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(format!("{NAME} parameters should sit between [0.0,100.0]"));
        }
        percentiles.push(percent);
    }
    Ok(percentiles)
}

fn read_shutdown(values: &[Vec<u8>]) -> Result<ShutdownFlags, String> {
    let mut flags = ShutdownFlags::default();
    if values.is_empty() {
        return Err(one_of(SHUTDOWN_WORDS));
    }
    for value in values {
        match position(SHUTDOWN_WORDS, value) {
            Some(0) => {}
            Some(1) => flags.save = true,
            Some(2) => flags.nosave = true,
            Some(3) => flags.now = true,
            Some(4) => flags.force = true,
            _ => return Err(one_of(SHUTDOWN_WORDS)),
        }
    }
    if flags.save && flags.nosave {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".to_owned());
    }
    Ok(flags)
}

fn shutdown_words(flags: ShutdownFlags) -> Vec<Vec<u8>> {
    let ShutdownFlags { save, nosave, now, force } = flags;
    let is_set = [flags == ShutdownFlags::default(), save, nosave, now, force];
    let set = SHUTDOWN_WORDS.iter().zip(is_set).filter(|(_, is_set)| *is_set);
    set.map(|(word, _)| word.as_bytes().to_vec()).collect()
}

fn read_output_limits(values: &[Vec<u8>], limits: &mut OutputBufferLimits) -> Result<(), String> {
    let (groups, rest) = values.as_chunks::<4>();
    if !rest.is_empty() {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    }
    for [class, hard, soft, seconds] in groups {
        let limit = match class.to_ascii_lowercase().as_slice() {
            b"normal" => &mut limits.normal,
            b"slave" | b"replica" => &mut limits.replica,
            b"pubsub" => &mut limits.pubsub,
            _ => return Err("Invalid client class specified in buffer limit configuration.".to_owned()),
        };
        let seconds = parse_integer(seconds).and_then(|seconds| u32::try_from(seconds).ok());
        *limit = match (parse_memory(hard), parse_memory(soft), seconds) {
            (Some(hard_bytes), Some(soft_bytes), Some(soft_seconds)) => {
                OutputBufferLimit { hard_bytes, soft_bytes, soft_seconds }
            }
            _ => {
                return Err(
                    "Error in hard, soft or soft_seconds setting in buffer limit configuration.".to_owned()
                );
            }
        };
    }
    Ok(())
}

fn print_output_limits(limits: OutputBufferLimits, replica: &str, bytes: impl Fn(u64) -> String) -> Vec<u8> {
    let classes = [("normal", limits.normal), (replica, limits.replica), ("pubsub", limits.pubsub)];
    let print = |(class, limit): (&str, OutputBufferLimit)| {
        format!("{class} {} {} {}", bytes(limit.hard_bytes), bytes(limit.soft_bytes), limit.soft_seconds)
    };
    classes.map(print).join(" ").into_bytes()
}

fn read_save_points(values: &[Vec<u8>]) -> Result<Vec<SavePoint>, String> {
    let invalid = || "Invalid save parameters".to_owned();
    let (pairs, rest) = values.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(invalid());
    }
    let point = |[seconds, changes]: &[Vec<u8>; 2]| {
        let number = |text: &[u8]| parse_integer(text).and_then(|number| u64::try_from(number).ok());
        let seconds = number(seconds).filter(|seconds| *seconds > 0)?;
        Some(SavePoint { seconds, changes: number(changes)? })
    };
    pairs.iter().map(|pair| point(pair).ok_or_else(invalid)).collect()
}
