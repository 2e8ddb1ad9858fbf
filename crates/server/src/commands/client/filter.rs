//! Which clients `CLIENT LIST` shows and `CLIENT KILL` closes.
//!
//! A client has to meet every condition. A condition that is given twice counts as it was given
//! last, but for `ID`, whose numbers add up. The conditions are Valkey 9's, and Redis's texts are
//! used for those that Redis 7.0 has already.

use dunlin_engine::command::{Args, CommandError};
use dunlin_net::{Client, Now, Transport};
use dunlin_resp::number::parse_integer;

use crate::observe::client_line::{Kind, capabilities, flags, user};

/// Letters that can stand in `flags`, here or in Redis and Valkey.
const FLAG_LETTERS: &[u8] = b"OSMPxbtRBdcuAUreTIiEN";
/// Letters that can stand in `capa`.
const CAPABILITY_LETTERS: &[u8] = b"r";

/// The purpose of the filter: the same mistake has another text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    List,
    Kill,
}

/// Databases and users that conditions can name.
#[derive(Clone, Copy)]
pub(super) struct Known<'k> {
    /// How many databases there are.
    pub(super) databases: usize,
    /// Whether there is a user of a name.
    pub(super) is_user: &'k dyn Fn(&[u8]) -> bool,
}

/// Conditions on clients.
#[derive(Debug, Default)]
pub(super) struct Filter<'a> {
    conditions: Vec<Condition<'a>>,
    /// Whether the client that asks is left out.
    pub(super) skip_me: bool,
}

#[derive(Debug, PartialEq)]
struct Condition<'a> {
    subject: Subject<'a>,
    negated: bool,
}

#[derive(Debug, PartialEq)]
enum Subject<'a> {
    Ids(Vec<i64>),
    Kind(Kind),
    User(&'a [u8]),
    Address(&'a [u8]),
    LocalAddress(&'a [u8]),
    Ip(&'a [u8]),
    AgeMin(i64),
    IdleMin(i64),
    Flags(&'a [u8]),
    Name(&'a [u8]),
    LibraryName(&'a [u8]),
    LibraryVersion(&'a [u8]),
    Database(i64),
    Capabilities(&'a [u8]),
}

impl<'a> Filter<'a> {
    /// Reads all that is left of `args`.
    pub(super) fn parse(
        args: &mut Args<'a>,
        purpose: Purpose,
        known: Known<'_>,
    ) -> Result<Self, CommandError> {
        let mut filter = Self { conditions: Vec::new(), skip_me: purpose == Purpose::Kill };
        while !args.is_empty() {
            if args.token_with("SKIPME", 1) {
                filter.skip_me = match args.word() {
                    word if word.eq_ignore_ascii_case(b"yes") => true,
                    word if word.eq_ignore_ascii_case(b"no") => false,
                    _ => return Err(CommandError::Syntax),
                };
                continue;
            }
            match Condition::parse(args, purpose, known)? {
                Some(condition) => filter.add(condition),
                None if purpose == Purpose::List && filter.ends_in_ids() => {
                    return Err(CommandError::text("ERR Invalid client ID"));
                }
                None => return Err(CommandError::Syntax),
            }
        }
        Ok(filter)
    }

    /// The filter of the old form of `CLIENT KILL`: one address.
    pub(super) fn address(address: &'a [u8]) -> Self {
        let condition = Condition { subject: Subject::Address(address), negated: false };
        Self { conditions: vec![condition], skip_me: false }
    }

    /// Whether a client meets all the conditions.
    pub(super) fn matches(&self, client: &Client, now: Now) -> bool {
        self.conditions.iter().all(|condition| condition.subject.matches(client, now) != condition.negated)
    }

    fn ends_in_ids(&self) -> bool {
        self.conditions.last().is_some_and(|last| matches!(last.subject, Subject::Ids(_)))
    }

    fn add(&mut self, mut condition: Condition<'a>) {
        let same = |earlier: &Condition<'_>| {
            earlier.negated == condition.negated
                && std::mem::discriminant(&earlier.subject) == std::mem::discriminant(&condition.subject)
        };
        if let Some(at) = self.conditions.iter().position(same) {
            let earlier = self.conditions.remove(at);
            if let (Subject::Ids(ids), Subject::Ids(earlier)) = (&mut condition.subject, earlier.subject) {
                ids.extend(earlier);
            }
        }
        self.conditions.push(condition);
    }
}

impl<'a> Condition<'a> {
    /// The condition at the cursor; `None` if there is none.
    fn parse(args: &mut Args<'a>, purpose: Purpose, known: Known<'_>) -> Result<Option<Self>, CommandError> {
        if args.remaining() < 2 {
            return Ok(None);
        }
        let option = args.word().to_ascii_uppercase();
        let (name, negated) = match option.strip_prefix(b"NOT-") {
            Some(name) => (name, true),
            None => (&option[..], false),
        };
        let subject = match name {
            b"ID" => Subject::Ids(ids(args, purpose, negated)?),
            b"TYPE" => Subject::Kind(kind(args.word())?),
            b"USER" => Subject::User(existing_user(args.word(), known)?),
            b"ADDR" => Subject::Address(args.word()),
            b"LADDR" => Subject::LocalAddress(args.word()),
            b"IP" => Subject::Ip(args.word()),
            b"MAXAGE" if !negated => Subject::AgeMin(positive(args.word(), "maxage")?),
            b"IDLE" if !negated => Subject::IdleMin(positive(args.word(), "idle")?),
            b"FLAGS" => Subject::Flags(letters(args.word(), FLAG_LETTERS, "flags", "FLAGS", negated)?),
            b"NAME" => Subject::Name(args.word()),
            b"LIB-NAME" => Subject::LibraryName(args.word()),
            b"LIB-VER" => Subject::LibraryVersion(args.word()),
            b"DB" => Subject::Database(database(args.word(), known.databases, negated)?),
            b"CAPA" => {
                Subject::Capabilities(letters(args.word(), CAPABILITY_LETTERS, "capa", "CAPA", negated)?)
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { subject, negated }))
    }
}

impl Subject<'_> {
    fn matches(&self, client: &Client, now: Now) -> bool {
        let seconds_since = |then_ms: u64| (now.steady_ms.saturating_sub(then_ms) / 1000) as i64;
        let has_messages =
            |present: String, wanted: &[u8]| wanted.iter().all(|letter| present.as_bytes().contains(letter));
        // A client without a name is not found by the empty one.
        let is_called = |name: &[u8], wanted: &[u8]| !name.is_empty() && name == wanted;
        match self {
            Self::Ids(ids) => ids.contains(&(client.id() as i64)),
            Self::Kind(kind) => Kind::of(client) == *kind,
            Self::User(wanted) => !client.is_outgoing() && user(&client.names()) == *wanted,
            Self::Address(wanted) => client.transport.peer_text().as_bytes() == *wanted,
            Self::LocalAddress(wanted) => client.transport.local_text().as_bytes() == *wanted,
            Self::Ip(wanted) => match &client.transport {
                Transport::Tcp { peer, .. } => peer.ip().to_string().as_bytes() == *wanted,
                Transport::Unix(_) => false,
            },
            Self::AgeMin(seconds) => seconds_since(client.created_ms) >= *seconds,
            Self::IdleMin(seconds) => seconds_since(client.last_interaction_ms.get()) >= *seconds,
            Self::Flags(wanted) => has_messages(flags(client), wanted),
            Self::Name(wanted) => is_called(&client.names().name, wanted),
            Self::LibraryName(wanted) => is_called(&client.names().library_name, wanted),
            Self::LibraryVersion(wanted) => is_called(&client.names().library_version, wanted),
            Self::Database(index) => client.database.get() as i64 == *index,
            Self::Capabilities(wanted) => has_messages(capabilities(client).to_owned(), wanted),
        }
    }
}

/// Reads one number, and all numbers behind it.
///
/// `LIST ID` takes any number and has a text of its own, as in Redis 7.0, which has no `NOT-ID`.
fn ids(args: &mut Args<'_>, purpose: Purpose, negated: bool) -> Result<Vec<i64>, CommandError> {
    let too_small = CommandError::text("ERR client-id should be greater than 0");
    let takes_any = purpose == Purpose::List && !negated;
    let mut ids = Vec::new();
    while let Some(id) = args.peek().and_then(parse_integer) {
        if id < 1 && !takes_any {
            return Err(too_small);
        }
        ids.push(id);
        args.word();
    }
    match (ids.is_empty(), negated, purpose) {
        (false, _, _) => Ok(ids),
        (true, true, _) => Err(CommandError::Syntax),
        (true, false, Purpose::List) => Err(CommandError::text("ERR Invalid client ID")),
        (true, false, Purpose::Kill) => Err(too_small),
    }
}

fn kind(word: &[u8]) -> Result<Kind, CommandError> {
    Kind::parse(word).ok_or_else(|| CommandError::quoting_within("ERR Unknown client type '", word, "'"))
}

fn existing_user<'a>(word: &'a [u8], known: Known<'_>) -> Result<&'a [u8], CommandError> {
    if (known.is_user)(word) {
        return Ok(word);
    }
    Err(CommandError::quoting_within("ERR No such user '", word, "'"))
}

fn positive(word: &[u8], name: &str) -> Result<i64, CommandError> {
    match parse_integer(word) {
        Some(value) if value > 0 => Ok(value),
        Some(_) => Err(CommandError::owned(format!("ERR {name} should be greater than 0"))),
        None => Err(CommandError::owned(format!("ERR {name} is not an integer or out of range"))),
    }
}

fn database(word: &[u8], databases: usize, negated: bool) -> Result<i64, CommandError> {
    let name = if negated { "NOT-DB" } else { "DB" };
    match parse_integer(word) {
        Some(index) if usize::try_from(index).is_ok_and(|index| index < databases) => Ok(index),
        Some(_) => {
            let last = databases - 1;
            Err(CommandError::owned(format!("ERR {name} number should be between 0 and {last}")))
        }
        None => Err(CommandError::owned(format!("ERR {name} is not an integer or out of range"))),
    }
}

fn letters<'a>(
    word: &'a [u8],
    known: &[u8],
    what: &str,
    option: &str,
    negated: bool,
) -> Result<&'a [u8], CommandError> {
    if word.iter().all(|letter| known.contains(letter)) {
        return Ok(word);
    }
    let place = if negated { format!("the NOT-{option} filter") } else { "the provided filter".to_owned() };
    Err(CommandError::quoting(&format!("ERR Unknown {what} found in {place}: "), word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &'static str, purpose: Purpose) -> Result<Filter<'static>, String> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let known = Known { databases: 16, is_user: &|name| name == b"default" };
        Filter::parse(&mut Args::new(words.leak(), 0), purpose, known).map_err(|error| error.to_string())
    }

    #[test]
    fn mistakes_have_their_texts() {
        for (line, list, kill) in [
            ("ID x", "ERR Invalid client ID", "ERR client-id should be greater than 0"),
            ("ID 1 x", "ERR Invalid client ID", "ERR syntax error"),
            ("ID", "ERR syntax error", "ERR syntax error"),
            ("NOT-ID x", "ERR syntax error", "ERR syntax error"),
            ("NOT-ID 0", "ERR client-id should be greater than 0", "ERR client-id should be greater than 0"),
            ("TYPE foo", "ERR Unknown client type 'foo'", "ERR Unknown client type 'foo'"),
            ("USER me", "ERR No such user 'me'", "ERR No such user 'me'"),
            ("SKIPME maybe", "ERR syntax error", "ERR syntax error"),
            ("NOT-SKIPME yes", "ERR syntax error", "ERR syntax error"),
            ("MAXAGE 0", "ERR maxage should be greater than 0", "ERR maxage should be greater than 0"),
            ("NOT-MAXAGE 1", "ERR syntax error", "ERR syntax error"),
            ("DB 16", "ERR DB number should be between 0 and 15", "ERR DB number should be between 0 and 15"),
            ("NAME", "ERR syntax error", "ERR syntax error"),
        ] {
            assert_eq!(parse(line, Purpose::List).unwrap_err(), list, "LIST {line}");
            assert_eq!(parse(line, Purpose::Kill).unwrap_err(), kill, "KILL {line}");
        }
    }

    #[test]
    fn client_filter_uses_the_last_word_but_all_numbers() {
        let filter = parse("ID 1 2 DB 3 id 4 db 5 NOT-DB 6", Purpose::Kill).unwrap();
        let positive = |subject| Condition { subject, negated: false };
        assert_eq!(
            filter.conditions,
            [
                positive(Subject::Ids(vec![4, 1, 2])),
                positive(Subject::Database(5)),
                Condition { subject: Subject::Database(6), negated: true },
            ]
        );
        assert!(filter.skip_me, "KILL spares who asks");
        assert!(!parse("ID 1", Purpose::List).unwrap().skip_me);
    }
}
