//! Commands as `COMMAND INFO`, `COMMAND DOCS` and the containers' `HELP` describe them: everything
//! is read off the row, nothing is kept beside it.
//!
//! ```text
//! INFO   [name, arity, {flags}, first key, last key, step, {categories}, {tips}, {key specs}, [subcommands]]
//! DOCS   name → {summary, since, group, complexity, …, history, arguments, subcommands}
//! ```

use dunlin_resp::ReplyBuffer;

use super::{Access, Argument, ArgumentKind, BeginSearch, CommandTable, Entry, FindKeys, Flags, KeySpec};

/// Properties by their names in `COMMAND INFO`, in the order of the reply.
const FLAG_NAMES: &[(Flags, &str)] = &[
    (Flags::DENY_OOM, "denyoom"),
    (Flags::ADMIN, "admin"),
    (Flags::PUBSUB, "pubsub"),
    (Flags::NO_SCRIPT, "noscript"),
    (Flags::BLOCKING, "blocking"),
    (Flags::LOADING, "loading"),
    (Flags::STALE, "stale"),
    (Flags::SKIP_MONITOR, "skip_monitor"),
    (Flags::SKIP_SLOWLOG, "skip_slowlog"),
    (Flags::ASKING, "asking"),
    (Flags::FAST, "fast"),
    (Flags::NO_AUTH, "no_auth"),
    (Flags::NO_MANDATORY_KEYS, "no_mandatory_keys"),
    (Flags::NO_ASYNC_LOADING, "no_async_loading"),
    (Flags::NO_MULTI, "no_multi"),
    (Flags::ALLOW_BUSY, "allow_busy"),
];

/// The access-control categories: those of Redis 7, then those that Redis 8 adds in the order of its `ACL CAT`. Rules may name a
/// category whose commands this server lacks; such a category is empty.
pub const CATEGORIES: &[&str] = &[
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
    "array",
    "json",
    "search",
    "tdigest",
    "cms",
    "bloom",
    "cuckoo",
    "topk",
    "timeseries",
];

impl Access {
    /// The name in `COMMAND INFO`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "RO",
            Self::ReadWrite => "RW",
            Self::Overwrite => "OW",
            Self::Remove => "RM",
        }
    }
}

/// First key, last key (negative: from the end) and step, as clients knew them before there were key
/// specifications; and whether that is not the whole truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key, 0 for none.
    pub first: i64,
    /// The last key.
    pub last: i64,
    /// Words from one key to the next.
    pub step: i64,
    /// There are keys that the range does not cover.
    pub movable: bool,
}

impl KeyRange {
    /// The range of a command with these specifications: the only one, or the union of consecutive
    /// ones with step 1.
    pub fn of(specs: &[KeySpec]) -> Self {
        let plain = |spec: &KeySpec| match (spec.begin, spec.find) {
            (BeginSearch::Index(first), FindKeys::Range { last, step, .. }) => {
                let first = i64::from(first);
                let last = if last >= 0 { first + i64::from(last) } else { i64::from(last) };
                Some((first, last, i64::from(step)))
            }
            _ => None,
        };
        if let [spec] = specs
            && let Some((first, last, step)) = plain(spec)
        {
            return Self { first, last, step, movable: false };
        }
        let mut range = Self { first: 0, last: 0, step: 0, movable: false };
        for spec in specs {
            match plain(spec) {
                Some((first, last, 1)) if range.first == 0 || range.last == first - 1 => {
                    let start = if range.first == 0 { first } else { range.first };
                    // A range that is open towards the end outdoes all others.
                    let last = if last < 0 || range.last < 0 { last.min(range.last) } else { last };
                    range = Self { first: start, last, step: 1, movable: range.movable };
                }
                _ => range.movable = true,
            }
        }
        range
    }
}

impl Entry {
    /// The properties as `COMMAND INFO` names them.
    pub fn flag_names(&self) -> Vec<&'static str> {
        let command = self.command;
        let mut names = Vec::new();
        names.extend(command.is_write().then_some("write"));
        names.extend(command.is_read_only().then_some("readonly"));
        names.extend(FLAG_NAMES.iter().filter(|(flag, _)| command.flags.has(*flag)).map(|(_, name)| *name));
        names.extend(KeyRange::of(command.keys).movable.then_some("movablekeys"));
        names
    }

    /// The access-control categories, without the `@`, in the order of [`CATEGORIES`].
    pub fn categories(&self) -> Vec<&'static str> {
        let (command, flags) = (self.command, self.command.flags);
        // Containers only name their subcommands, which are what permissions are given for.
        let is_container = matches!(command.run, super::Run::Container);
        let group = command.group.category().filter(|_| !is_container);
        let has = |category: &str| match category {
            "keyspace" if flags.has(Flags::KEYSPACE) => true,
            "keyspace" if flags.has(Flags::ELEMENTS) || flags.has(Flags::CONNECTION) => false,
            "list" | "set" | "sortedset" if flags.has(Flags::ELEMENTS) => true,
            "connection" if flags.has(Flags::CONNECTION) => true,
            "write" => command.is_write(),
            "read" => command.is_read_only() && group != Some("scripting"),
            "admin" => flags.has(Flags::ADMIN) || flags.has(Flags::ADMIN_CATEGORY),
            "dangerous" => flags.has(Flags::ADMIN) || flags.has(Flags::DANGEROUS),
            "pubsub" if flags.has(Flags::PUBSUB) => true,
            "fast" => flags.has(Flags::FAST),
            "slow" => !flags.has(Flags::FAST),
            "blocking" => flags.has(Flags::BLOCKING),
            category => group == Some(category),
        };
        CATEGORIES.iter().copied().filter(|category| has(category)).collect()
    }

    /// The request's shape in one line: `SET key value [NX | XX]`.
    pub fn syntax(&self) -> String {
        let mut line = self.full_name().to_uppercase().replace('|', " ");
        for argument in self.command.args {
            line.push(' ');
            line.push_str(&argument.syntax());
        }
        line
    }

    /// Changes since the command was introduced, oldest first: the versions of its younger arguments. Of one version,
    /// options with a value come before those without, as in the texts that clients' tests compare.
    fn history(&self) -> Vec<(&'static str, String)> {
        let mut younger = Vec::new();
        self.command.args.iter().for_each(|argument| argument.collect_younger(None, &mut younger));
        younger.sort_by_cached_key(|(since, argument)| {
            let numbers = since.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
            (numbers, argument.kind == ArgumentKind::PureToken)
        });
        younger.chunk_by(|(since, _), (next, _)| since == next).map(Self::change).collect()
    }

    /// The arguments of one version as a sentence.
    fn change(added: &[(&'static str, &Argument)]) -> (&'static str, String) {
        let is_option = |argument: &Argument| argument.token.is_some_and(|token| !token.is_empty());
        let noun = if added.iter().all(|(_, argument)| is_option(argument)) { "option" } else { "argument" };
        let names: Vec<String> = added
            .iter()
            .map(|(_, argument)| {
                format!("`{}`", argument.token.filter(|token| !token.is_empty()).unwrap_or(argument.name))
            })
            .collect();
        let (last, others) = names.split_last().expect("a chunk is not empty");
        let sentence = match others {
            [] => format!("Added the {last} {noun}."),
            others => format!("Added the {} and {last} {noun}s.", others.join(", ")),
        };
        (added[0].0, sentence)
    }
}

impl Argument {
    /// Its shape: tokens in capitals, `[optional]`, `one | other`, `repeated [repeated ...]`.
    fn syntax(&self) -> String {
        let children = |separator| {
            let shapes: Vec<String> = self.children.iter().map(Argument::syntax).collect();
            shapes.join(separator)
        };
        let inner = match self.kind {
            ArgumentKind::PureToken => String::new(),
            ArgumentKind::OneOf if self.optional && self.token.is_none() && !self.multiple => children(" | "),
            ArgumentKind::OneOf => format!("<{}>", children(" | ")),
            ArgumentKind::Block => children(" "),
            _ => self.name.to_owned(),
        };
        let tokened = |shape: &str| match self.token {
            Some("") => format!("\"\" {shape}").trim_end().to_owned(),
            Some(token) => format!("{token} {shape}").trim_end().to_owned(),
            None => shape.to_owned(),
        };
        let shape = match (self.multiple, self.multiple_token) {
            (false, _) => tokened(&inner),
            (true, true) => format!("{0} [{0} ...]", tokened(&inner)),
            (true, false) => tokened(&format!("{inner} [{inner} ...]")),
        };
        if self.optional { format!("[{shape}]") } else { shape }
    }

    /// The arguments that are younger than their command, with their versions. A choice without a word of its own is as old
    /// as the words that it is between.
    fn collect_younger<'a>(
        &'a self,
        of_parent: Option<&'static str>,
        younger: &mut Vec<(&'static str, &'a Argument)>,
    ) {
        let since = self.since.or(of_parent);
        let is_choice = self.kind == ArgumentKind::OneOf && self.token.is_none();
        if let Some(since) = since.filter(|_| !is_choice) {
            younger.push((since, self));
        }
        let inherited = since.filter(|_| is_choice);
        self.children.iter().for_each(|child| child.collect_younger(inherited, younger));
    }
}

/// Appends the reply of `COMMAND INFO` about a command.
pub fn write_info(table: &CommandTable, entry: &Entry, reply: &mut ReplyBuffer) {
    let command = entry.command;
    let range = KeyRange::of(command.keys);
    reply.array(10);
    reply.bulk(entry.full_name().as_bytes());
    reply.integer(command.arity.signed());
    write_names(&entry.flag_names(), reply);
    reply.integer(range.first);
    reply.integer(range.last);
    reply.integer(range.step);
    let categories = entry.categories();
    reply.set(categories.len());
    categories.iter().for_each(|category| reply.simple(&format!("@{category}")));
    reply.set(command.tips.len());
    command.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(command.keys.len());
    command.keys.iter().for_each(|spec| write_key_spec(spec, reply));
    let subcommands = &table.entries()[entry.subcommands.clone()];
    if subcommands.is_empty() {
        return reply.set(0);
    }
    reply.array(subcommands.len());
    subcommands.iter().for_each(|subcommand| write_info(table, subcommand, reply));
}

fn write_names(names: &[&str], reply: &mut ReplyBuffer) {
    reply.set(names.len());
    names.iter().for_each(|name| reply.simple(name));
}

/// How keys are used, as a set of names.
fn write_usage(spec: &KeySpec, reply: &mut ReplyBuffer) {
    let access = spec.is_of_keys().then(|| spec.access.name());
    let names: Vec<&str> = access.into_iter().chain(spec.flags.names()).collect();
    write_names(&names, reply);
}

fn write_key_spec(spec: &KeySpec, reply: &mut ReplyBuffer) {
    reply.map(3);
    reply.bulk(b"flags");
    write_usage(spec, reply);
    let (kind, fields): (&str, Vec<(&str, i64)>) = match spec.find {
        _ if matches!(spec.begin, BeginSearch::Unknown(_)) => ("unknown", Vec::new()),
        FindKeys::Range { last, step, limit } => {
            ("range", vec![("lastkey", last.into()), ("keystep", step.into()), ("limit", limit.into())])
        }
        FindKeys::Count { count_at, first, step } => (
            "keynum",
            vec![("keynumidx", count_at.into()), ("firstkey", first.into()), ("keystep", step.into())],
        ),
    };
    reply.bulk(b"begin_search");
    reply.map(2);
    reply.bulk(b"type");
    match spec.begin {
        BeginSearch::Index(index) => {
            reply.bulk(b"index");
            reply.bulk(b"spec");
            reply.map(1);
            reply.bulk(b"index");
            reply.integer(index.into());
        }
        BeginSearch::Keyword { word, from, .. } => {
            reply.bulk(b"keyword");
            reply.bulk(b"spec");
            reply.map(2);
            reply.bulk(b"keyword");
            reply.bulk(word.as_bytes());
            reply.bulk(b"startfrom");
            reply.integer(from.into());
        }
        BeginSearch::Unknown(_) => {
            reply.bulk(b"unknown");
            reply.bulk(b"spec");
            reply.map(0);
        }
    }
    reply.bulk(b"find_keys");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    }
}

/// Appends a command's name and its part of `COMMAND DOCS`: one pair of a map.
pub fn write_docs(table: &CommandTable, entry: &Entry, reply: &mut ReplyBuffer) {
    let command = entry.command;
    let subcommands = &table.entries()[entry.subcommands.clone()];
    let history = entry.history();
    let optional = [!history.is_empty(), !command.args.is_empty(), !subcommands.is_empty()];
    let deprecated = if command.deprecated.is_some() { 3 } else { 0 };
    reply.bulk(entry.full_name().as_bytes());
    reply.map(4 + deprecated + optional.iter().filter(|there| **there).count());
    for (name, value) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group.name()),
        ("complexity", command.complexity),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    if let Some((since, replacement)) = command.deprecated {
        reply.bulk(b"doc_flags");
        write_names(&["deprecated"], reply);
        reply.bulk(b"deprecated_since");
        reply.bulk(since.as_bytes());
        reply.bulk(b"replaced_by");
        reply.bulk(replacement.as_bytes());
    }
    if !history.is_empty() {
        reply.bulk(b"history");
        reply.set(history.len());
        for (version, change) in history {
            reply.array(2);
            reply.bulk(version.as_bytes());
            reply.bulk(change.as_bytes());
        }
    }
    if !command.args.is_empty() {
        write_arguments(command.args, reply);
    }
    if !subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(subcommands.len());
        subcommands.iter().for_each(|subcommand| write_docs(table, subcommand, reply));
    }
}

fn write_arguments(arguments: &[Argument], reply: &mut ReplyBuffer) {
    reply.bulk(b"arguments");
    reply.array(arguments.len());
    for argument in arguments {
        let flags = [
            (argument.optional, "optional"),
            (argument.multiple, "multiple"),
            (argument.multiple_token, "multiple_token"),
        ];
        let flags: Vec<&str> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
        let is_key = argument.kind == ArgumentKind::Key || argument.key_spec_index > 0;
        let optional = [
            is_key,
            argument.token.is_some(),
            argument.since.is_some(),
            !flags.is_empty(),
            !argument.children.is_empty(),
        ];
        reply.map(2 + optional.iter().filter(|there| **there).count());
        reply.bulk(b"name");
        reply.bulk(argument.name.as_bytes());
        reply.bulk(b"type");
        reply.bulk(argument.kind.name().as_bytes());
        if is_key {
            reply.bulk(b"key_spec_index");
            reply.integer(argument.key_spec_index.into());
        }
        if let Some(token) = argument.token {
            reply.bulk(b"token");
            reply.bulk(token.as_bytes());
        }
        if let Some(since) = argument.since {
            reply.bulk(b"since");
            reply.bulk(since.as_bytes());
        }
        if !flags.is_empty() {
            reply.bulk(b"flags");
            write_names(&flags, reply);
        }
        if !argument.children.is_empty() {
            write_arguments(argument.children, reply);
        }
    }
}

/// Appends the keys of a request, with how each is used if `with_flags`.
pub fn write_keys(entry: &Entry, words: &[&[u8]], with_flags: bool, reply: &mut ReplyBuffer) {
    let keys: Vec<(KeySpec, &[u8])> = entry
        .command
        .keys
        .iter()
        .flat_map(|spec| spec.positions(words).map(|at| (spec.used_by(entry.command, words), words[at])))
        .collect();
    reply.array(keys.len());
    for (spec, key) in keys {
        if with_flags {
            reply.array(2);
        }
        reply.bulk(key);
        if with_flags {
            write_usage(&spec, reply);
        }
    }
}

/// Appends the lines of a container's `HELP`.
pub fn write_help(table: &CommandTable, container: &Entry, reply: &mut ReplyBuffer) {
    let name = container.command.name.to_uppercase();
    let mut lines = vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    let subcommands = &table.entries()[container.subcommands.clone()];
    let (help, others): (Vec<_>, Vec<_>) = subcommands.iter().partition(|entry| entry.command.name == "help");
    if !matches!(container.command.run, super::Run::Container) {
        lines.extend(["(no subcommand)".to_owned(), format!("    {}", container.command.summary)]);
    }
    for entry in others.into_iter().chain(help) {
        lines.push(entry.syntax().split_off(name.len() + 1));
        lines.push(format!("    {}", entry.command.summary));
    }
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.simple(line));
}

#[cfg(test)]
mod tests {
    use dunlin_resp::Protocol;

    use super::*;
    use crate::{command::Command, commands};

    const EXAMPLE: Command = Command {
        name: "example",
        summary: "Shows every kind of argument.",
        complexity: "O(n)",
        keys: &[KeySpec::at(1).read_write().accesses().updates()],
        flags: Flags::WRITE,
        args: &[
            Argument::key("key"),
            Argument::one_of("condition", &[Argument::word("nx", "NX"), Argument::word("xx", "XX")])
                .optional()
                .since("2.6.12"),
            Argument::integer("count").after("COUNT").optional(),
            Argument::string("get").after("GET").optional().multiple_token(),
            Argument::block("pair", &[Argument::string("field"), Argument::string("value")]).multiple(),
        ],
        ..Command::DEFAULT
    };

    #[test]
    fn syntax_reads_like_a_manual() {
        let table = CommandTable::new(&[&[EXAMPLE]]);
        assert_eq!(
            table.find(b"example").unwrap().syntax(),
            "EXAMPLE key [NX | XX] [COUNT count] [GET get [GET get ...]] field value [field value ...]"
        );
    }

    #[test]
    fn key_ranges_are_what_old_clients_know() {
        let range = |specs: &[KeySpec]| {
            let KeyRange { first, last, step, movable } = KeyRange::of(specs);
            (first, last, step, movable)
        };
        assert_eq!(range(&[]), (0, 0, 0, false));
        assert_eq!(range(&[KeySpec::at(1)]), (1, 1, 1, false));
        assert_eq!(range(&[KeySpec::at(1).through(-1, 2)]), (1, -1, 2, false));
        assert_eq!(range(&[KeySpec::at(1).through(-2, 1)]), (1, -2, 1, false));
        assert_eq!(range(&[KeySpec::at(1).counted()]), (0, 0, 0, true));
        assert_eq!(range(&[KeySpec::at(1), KeySpec::at(2)]), (1, 2, 1, false));
        assert_eq!(range(&[KeySpec::at(2), KeySpec::at(3).through(-1, 1)]), (2, -1, 1, false));
        assert_eq!(range(&[KeySpec::at(1), KeySpec::at(2).counted()]), (1, 1, 1, true));
    }

    fn check(protocol: Protocol, expected: &str, write: impl FnOnce(&CommandTable, &mut ReplyBuffer)) {
        let families = [commands::FAMILIES, &[&[EXAMPLE]]].concat();
        let table = CommandTable::new(&families);
        let mut reply = ReplyBuffer::default();
        reply.set_protocol(protocol);
        write(&table, &mut reply);
        let text: Vec<u8> = reply.chunks().flatten().copied().collect();
        assert_eq!(String::from_utf8(text).unwrap().replace("\r\n", " ").trim_end(), expected);
    }

    #[test]
    fn info_has_ten_elements() {
        check(
            Protocol::Resp3,
            "*10 $3 get :2 ~2 +readonly +fast :1 :1 :1 ~3 +@read +@string +@fast ~0 ~1 \
             %3 $5 flags ~2 +RO +access $12 begin_search %2 $4 type $5 index $4 spec %1 $5 index :1 \
             $9 find_keys %2 $4 type $5 range $4 spec %3 $7 lastkey :0 $7 keystep :1 $5 limit :0 ~0",
            |table, reply| write_info(table, table.find(b"GET").unwrap(), reply),
        );
    }

    #[test]
    fn docs_have_the_words_that_tests_of_clients_compare() {
        let table = CommandTable::new(commands::FAMILIES);
        let (sort, set) = (table.find(b"sort").unwrap(), table.find(b"set").unwrap());
        assert_eq!(sort.history(), []);
        assert_eq!(
            sort.command.summary,
            "Sorts the elements in a list, a set, or a sorted set, optionally storing the result."
        );
        assert_eq!((set.command.since, set.command.complexity), ("1.0.0", "O(1)"));
        let history: Vec<String> =
            set.history().into_iter().map(|(since, change)| format!("{since}: {change}")).collect();
        assert_eq!(history[0], "2.6.12: Added the `EX`, `PX`, `NX` and `XX` options.");
        assert_eq!(history[1], "6.0.0: Added the `KEEPTTL` option.");
        assert!(history.is_sorted(), "{history:?}");
    }

    #[test]
    fn docs_are_nested_maps() {
        check(
            Protocol::Resp3,
            "$7 example %6 $7 summary $29 Shows every kind of argument. $5 since $5 1.0.0 $5 group $7 generic \
             $10 complexity $4 O(n) $7 history ~1 *2 $6 2.6.12 $32 Added the `NX` and `XX` options. $9 arguments *5 \
             %3 $4 name $3 key $4 type $3 key $14 key_spec_index :0 \
             %5 $4 name $9 condition $4 type $5 oneof $5 since $6 2.6.12 $5 flags ~1 +optional $9 arguments *2 \
             %3 $4 name $2 nx $4 type $10 pure-token $5 token $2 NX \
             %3 $4 name $2 xx $4 type $10 pure-token $5 token $2 XX \
             %4 $4 name $5 count $4 type $7 integer $5 token $5 COUNT $5 flags ~1 +optional \
             %4 $4 name $3 get $4 type $6 string $5 token $3 GET $5 flags ~3 +optional +multiple +multiple_token \
             %4 $4 name $4 pair $4 type $5 block $5 flags ~1 +multiple $9 arguments *2 \
             %2 $4 name $5 field $4 type $6 string %2 $4 name $5 value $4 type $6 string",
            |table, reply| write_docs(table, table.find(b"example").unwrap(), reply),
        );
    }

    #[test]
    fn keys_come_with_their_actual_use() {
        let words =
            |line: &'static str| -> Vec<&'static [u8]> { line.split(' ').map(str::as_bytes).collect() };
        for (request, expected) in [
            ("set a b", "*1 *2 $1 a ~2 +OW +update"),
            ("set a b GET", "*1 *2 $1 a ~3 +RW +access +update"),
            ("get a", "*1 *2 $1 a ~2 +RO +access"),
        ] {
            check(Protocol::Resp3, expected, |table, reply| {
                let words = words(request);
                write_keys(table.find(words[0]).unwrap(), &words, true, reply);
            });
        }
    }
}
