//! Users as they are made by rules, and their permissions.

use std::ops::ControlFlow;

use proptest::prelude::*;

use crate::{
    Commands, Denial, KeyAccess, Reason, Request, RuleError, SetUserError, Touched, User, UserDefaults,
    Users, commands::example, file,
};

const NOTHING: UserDefaults = UserDefaults { all_channels: false };

/// A request of the example's commands, with the database of its client.
struct Line<'a> {
    command: usize,
    words: Vec<&'a [u8]>,
    database: i32,
}

impl<'a> Line<'a> {
    fn new(commands: &Commands, line: &'a str) -> Self {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let container = commands.find(words[0]).expect("a command");
        let full = [words[0], b"|", words.get(1).copied().unwrap_or_default()].concat();
        Self { command: commands.find(&full).unwrap_or(container), words, database: 0 }
    }

    fn name(&self) -> String {
        String::from_utf8_lossy(self.words[0]).to_ascii_lowercase()
    }
}

impl Request for Line<'_> {
    fn command(&self) -> usize {
        self.command
    }

    fn is_for_everyone(&self) -> bool {
        self.name() == "auth"
    }

    fn first_argument(&self) -> Option<&[u8]> {
        self.words.get(1).copied()
    }

    fn keys(
        &self,
        mut visit: impl FnMut(usize, &[u8], KeyAccess) -> ControlFlow<Denial>,
    ) -> ControlFlow<Denial> {
        let (access, keys) = match self.name().as_str() {
            "get" | "mget" => (KeyAccess::READ, &self.words[1..]),
            "strlen" => (KeyAccess::NONE, &self.words[1..]),
            "set" => (KeyAccess::WRITE, &self.words[1..2]),
            "del" => (KeyAccess::WRITE, &self.words[1..]),
            _ => return ControlFlow::Continue(()),
        };
        keys.iter().enumerate().try_for_each(|(at, key)| visit(at + 1, key, access))
    }

    fn channels(
        &self,
        mut visit: impl FnMut(usize, &[u8], bool) -> ControlFlow<Denial>,
    ) -> ControlFlow<Denial> {
        if self.name() == "publish" { visit(1, self.words[1], false) } else { ControlFlow::Continue(()) }
    }

    fn databases(&self, mut visit: impl FnMut(Touched) -> ControlFlow<Denial>) -> ControlFlow<Denial> {
        match self.name().as_str() {
            "select" => {
                let number = std::str::from_utf8(self.words[1]).ok().and_then(|text| text.parse().ok());
                number.map_or(ControlFlow::Continue(()), |number| visit(Touched::One { word: 1, number }))
            }
            "get" | "mget" | "strlen" | "set" | "del" | "keys" => {
                visit(Touched::One { word: 0, number: self.database })
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn words(rules: &str) -> Vec<&[u8]> {
    rules.split(' ').map(str::as_bytes).collect()
}

fn try_user(rules: &str) -> Result<User, SetUserError> {
    let commands = example();
    User::new(b"u", NOTHING, &commands).with_rules(&words(rules), NOTHING, &commands)
}

fn user(rules: &str) -> User {
    try_user(rules).expect("good rules")
}

fn decide(user: &User, line: &str) -> Result<(), (Reason, usize)> {
    let commands = example();
    user.decide(&Line::new(&commands, line)).map_err(|denial| (denial.reason, denial.word))
}

#[test]
fn rules_render_in_the_form_that_sets_them() {
    for (rules, expected) in [
        ("", "off resetchannels -@all"),
        (
            "on >a >b >a nopass >c",
            "on #2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6 resetchannels -@all",
        ),
        ("on nopass +@all ~* &*", "on nopass ~* &* +@all"),
        ("~a %R~b %W~b %W~c", "off ~a ~b %W~c resetchannels -@all"),
        ("reset", "off sanitize-payload resetchannels -@all"),
        ("skip-sanitize-payload", "off skip-sanitize-payload resetchannels -@all"),
        ("&a &b &a", "off resetchannels &a &b -@all"),
        ("db=3 db=2,0", "off resetchannels db=0,2 -@all"),
        ("db=3 resetdbs", "off resetchannels resetdbs -@all"),
        ("db=3 alldbs", "off resetchannels -@all"),
        ("+GET +Config|Get -@ALL", "off resetchannels -@all"),
        ("+GET +@String +get", "off resetchannels -@all +@string +get"),
        ("+config|get +config", "off resetchannels -@all +config"),
        ("+config -config|get", "off resetchannels -@all +config -config|get"),
        ("+select|0 +select|1 +get", "off resetchannels -@all +select|0 +select|1 +get"),
        ("+select|0 -select", "off resetchannels -@all -select"),
        ("+@all -@read -@write +@read", "off resetchannels +@all -@write +@read"),
        (
            "(+get ~x) ( +set ~y ) ()",
            "off resetchannels -@all (~x resetchannels -@all +get) (~y resetchannels -@all +set) (resetchannels -@all)",
        ),
        ("(+get) clearselectors", "off resetchannels -@all"),
        ("(allkeys allcommands db=1)", "off resetchannels -@all (~* resetchannels db=1 +@all)"),
    ] {
        let made = user(rules);
        assert_eq!(String::from_utf8(made.describe()).unwrap(), expected, "{rules}");
        let again = user(std::str::from_utf8(&made.describe()).unwrap());
        assert_eq!(again.describe(), made.describe(), "{rules}");
    }
}

#[test]
fn wrong_rules_are_refused_with_their_word() {
    for (rules, word, error) in [
        ("on <nobody", "<nobody", RuleError::NoSuchPassword),
        ("~* ~a", "~a", RuleError::KeysAfterAll),
        ("allkeys %R~*", "%R~*", RuleError::KeysAfterAll),
        ("&* &a", "&a", RuleError::ChannelsAfterAll),
        ("(+get foo)", "(+get foo)", RuleError::Syntax),
        ("(+get on)", "(+get on)", RuleError::Syntax),
        ("((+get))", "((+get))", RuleError::Syntax),
        ("+nothing", "+nothing", RuleError::Unknown),
    ] {
        let refused = try_user(rules).unwrap_err();
        assert!(
            matches!(&refused, SetUserError::Rule { word: found, error: reason, .. }
                if found == word.as_bytes() && *reason == error),
            "{rules}: {refused:?}"
        );
    }
    let text = try_user("( +get").unwrap_err().text();
    assert_eq!(text, b"Unmatched parenthesis in acl selector starting at '('.");
    let text = try_user("+nothing").unwrap_err().text();
    assert_eq!(text, b"Error in ACL SETUSER modifier '+nothing': Unknown command or category name in ACL");
}

#[test]
fn decisions_name_what_is_denied() {
    let reader = user("on ~app:* %R~shared:* %W~out:* &news:* +@read +set +publish -keys +select|0");
    for (line, expected) in [
        ("GET app:1", Ok(())),
        ("GET shared:1", Ok(())),
        ("GET out:1", Err((Reason::Key, 1))),
        ("STRLEN out:1", Ok(())),
        ("STRLEN other", Err((Reason::Key, 1))),
        ("SET shared:1 x", Err((Reason::Key, 1))),
        ("SET out:1 x", Ok(())),
        ("MGET app:1 shared:1 other", Err((Reason::Key, 3))),
        ("DEL app:1", Err((Reason::Command, 0))),
        ("KEYS *", Err((Reason::Command, 0))),
        ("PUBLISH news:1 x", Ok(())),
        ("PUBLISH old:1 x", Err((Reason::Channel, 1))),
        ("SELECT 0", Ok(())),
        ("SELECT 1", Err((Reason::Command, 0))),
        ("CONFIG GET x", Err((Reason::Command, 0))),
        ("AUTH x", Ok(())),
    ] {
        assert_eq!(decide(&reader, line), expected, "{line}");
    }
    assert!(!reader.is_unrestricted() && user("+@all ~* &*").is_unrestricted());
    assert!(!user("+@all ~* &* db=0").is_unrestricted() && user("(+@all ~* &*)").is_unrestricted());
    assert!(!user("+@all -get ~* &*").is_unrestricted() && user("+@all -get +get ~* &*").is_unrestricted());
}

#[test]
fn selector_alone_must_allow_the_whole_request() {
    let both = user("+get ~a (+set ~b) (+mget ~a ~b)");
    for (line, expected) in [
        ("GET a", Ok(())),
        ("GET b", Err((Reason::Key, 1))),
        ("SET b 1", Ok(())),
        ("SET a 1", Err((Reason::Key, 1))),
        ("MGET a b", Ok(())),
        ("MGET a c", Err((Reason::Key, 2))),
        ("DEL a", Err((Reason::Command, 0))),
    ] {
        assert_eq!(decide(&both, line), expected, "{line}");
    }
    assert!(user("+@all %R~*").selectors().next().unwrap().covers_all_keys(KeyAccess::READ));
    assert!(!user("+@all %R~*").selectors().next().unwrap().covers_all_keys(KeyAccess::BOTH));
}

#[test]
fn databases_are_looked_at_before_commands() {
    let other = user("+get ~* db=1 (+keys db=0)");
    assert_eq!(decide(&other, "GET a"), Err((Reason::Command, 0)), "the other selector comes farther");
    assert_eq!(decide(&other, "SELECT 2"), Err((Reason::Database, 1)));
    assert_eq!(decide(&other, "SELECT 1"), Err((Reason::Command, 0)));
    assert_eq!(decide(&other, "KEYS *"), Ok(()));
    let commands = example();
    let in_one = Line { database: 1, ..Line::new(&commands, "GET a") };
    assert_eq!(other.decide(&in_one), Ok(()));
}

#[test]
fn user_may_have_two_passwords_at_once() {
    let commands = example();
    let rotating = user("on >old >new");
    assert!(rotating.accepts(b"old") && rotating.accepts(b"new") && !rotating.accepts(b""));
    let rotated = rotating.with_rules(&words("<old"), NOTHING, &commands).unwrap();
    assert!(!rotated.accepts(b"old") && rotated.accepts(b"new"));
    assert!(user("on nopass").accepts(b"any") && !user("off nopass").accepts(b"any"));
    assert!(!user("on").accepts(b"") && !user("on >x resetpass").accepts(b"x"));
}

#[test]
fn users_keep_their_identity_over_changes_only() {
    let commands = example();
    let mut users = Users::new(&commands);
    let (before, first) = users.set(b"u", &words("on"), NOTHING, &commands).unwrap();
    assert!(before.is_none());
    let (before, second) = users.set(b"u", &words("reset off"), NOTHING, &commands).unwrap();
    assert!(before.unwrap().is_same(&first) && second.is_same(&first));
    assert!(users.remove(b"u") && !users.remove(b"u") && !users.remove(b"default"));
    let (_, third) = users.set(b"u", &words("on"), NOTHING, &commands).unwrap();
    assert!(!third.is_same(&first) && !third.is_same(users.default_user()));
    assert!(users.set(b"u", &words("off +nothing"), NOTHING, &commands).is_err());
    assert!(users.get(b"u").unwrap().is_on(), "no rule is applied unless all are");
    users.replace(vec![user("on >x")], &commands);
    assert!(users.get(b"u").unwrap().is_same(&third) && users.default_user().is_unrestricted());
}

#[test]
fn channels_that_are_lost_are_noticed() {
    for (before, after, keeps) in [
        ("&a", "&a &b", true),
        ("&a &b", "&a", false),
        ("&a (&b)", "&b (&a)", true),
        ("&*", "&a", false),
        ("&a", "&*", true),
        ("&a", "&a*", false),
    ] {
        assert_eq!(user(after).keeps_channels_of(&user(before)), keeps, "{before} {after}");
    }
    let listener = user("&a* (&b)");
    assert!(listener.may_listen(b"ab", false) && listener.may_listen(b"b", false));
    assert!(listener.may_listen(b"a*", true) && !listener.may_listen(b"ab", true));
}

#[test]
fn acl_file_is_taken_whole_or_not_at_all() {
    let commands = example();
    let parse = |text: &str| file::parse(text.as_bytes(), NOTHING, &commands);
    let users =
        parse("user default on nopass ~* &* +@all\r\n\n  user  app  on (+get  ~x)\t\nuser b").unwrap();
    assert_eq!(users.iter().map(User::name).collect::<Vec<_>>(), [&b"default"[..], b"app", b"b"]);
    let errors = parse(
        "# comment\nuser\nuser a on\nuser a off\nuser b\tc on\nuser d on secret\nuser e +nothing -get\nuser f (+get\n\
         user g #123\nuser h on >ok",
    )
    .unwrap_err();
    let text = String::from_utf8(file::describe_errors("users.acl", &errors)).unwrap();
    assert_eq!(
        text,
        "users.acl:1 should start with user keyword followed by the username. \
         users.acl:2 should start with user keyword followed by the username. \
         WARNING: Duplicate user 'a' found on line 4. \
         'users.acl:5: username 'b\tc' contains invalid characters. \
         users.acl:6: Syntax error (word 4). \
         users.acl:7: Error in applying operation '+nothing': Unknown command or category name in ACL. \
         users.acl:8: Unmatched parenthesis in selector definition (word 3). \
         users.acl:9: The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters (word 3). \
         WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
    );
    assert!(parse("").unwrap().is_empty());
}

/// Rules that are good by themselves, many of them about the same.
fn rule() -> impl Strategy<Value = &'static str> {
    prop::sample::select(
        &[
            "+get",
            "-get",
            "+set",
            "-set",
            "+mget",
            "+@read",
            "-@read",
            "+@string",
            "-@string",
            "+@all",
            "-@all",
            "+config",
            "-config",
            "+config|get",
            "-config|get",
            "+config|set",
            "+@slow",
            "-@slow",
            "+select|0",
            "+select|1",
            "-select",
            "+select",
            "+@connection",
            "-@connection",
            "+acl",
            "-acl|list",
            "+publish",
            "~a*",
            "%R~b*",
            "%W~b*",
            "allkeys",
            "resetkeys",
            "&a*",
            "&b",
            "allchannels",
            "resetchannels",
            "on",
            "off",
            ">one",
            ">two",
            "nopass",
            "resetpass",
            "db=0",
            "db=1,0",
            "alldbs",
            "resetdbs",
            "(+get ~c)",
            "(-@all +@read %R~* db=1)",
            "clearselectors",
            "sanitize-payload",
            "skip-sanitize-payload",
            "reset",
        ][..],
    )
}

const LINES: &[&str] = &[
    "GET a",
    "GET b",
    "GET c",
    "SET a 1",
    "SET b 1",
    "MGET a b",
    "STRLEN b",
    "DEL a",
    "CONFIG GET x",
    "CONFIG SET x y",
    "ACL LIST",
    "ACL WHOAMI",
    "SELECT 0",
    "SELECT 1",
    "PUBLISH a 1",
    "PUBLISH c 1",
    "KEYS *",
    "PING",
    "AUTH x",
];

/// Whether rules allow a command, by looking at each in turn: of categories and names, the last counts.
fn model_allows(rules: &[&str], line: &Line<'_>, commands: &Commands) -> bool {
    let (mut is_allowed, mut first_arguments) = (false, Vec::new());
    for rule in rules {
        let (allows, name) = match rule.split_at(1) {
            _ if *rule == "reset" => (false, "@all"),
            ("+", name) => (true, name),
            ("-", name) => (false, name),
            _ => continue,
        };
        let container = commands.name(line.command).split('|').next().unwrap();
        let is_about = |number: usize| match name.strip_prefix('@') {
            Some("all") => true,
            Some(category) => commands
                .in_category(commands.category(category.as_bytes()).unwrap())
                .any(|known| known == commands.name(number)),
            None => commands.name(number) == name,
        };
        if let Some(argument) = name.strip_prefix("select|") {
            if container == "select" {
                first_arguments.push(argument);
            }
        } else if is_about(line.command) || is_about(commands.find(container.as_bytes()).unwrap()) {
            is_allowed = allows;
            first_arguments.clear();
        }
    }
    let argument = line.first_argument().unwrap_or_default();
    is_allowed || line.is_for_everyone() || first_arguments.iter().any(|known| known.as_bytes() == argument)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn key_patterns_match_as_globs_do(pattern in "[ab*?\\[\\]\\\\]{0,4}\\*?", key in "[ab*]{0,5}") {
        let Ok(made) = try_user(&format!("+get ~{pattern}")) else { return Ok(()) };
        let commands = example();
        let words = vec![&b"GET"[..], key.as_bytes()];
        let request = Line { command: 8, words, database: 0 };
        let expected = pattern == "*"
            || dunlin_structures::glob::Glob::new(pattern.as_bytes()).is_ok_and(|glob| glob.matches(key.as_bytes()));
        prop_assert_eq!(made.decide(&request).is_ok(), expected);
        prop_assert_eq!(commands.name(8), "get");
    }

    #[test]
    fn described_rules_make_the_same_user(rules in prop::collection::vec(rule(), 0..20)) {
        let commands = example();
        let Ok(made) = try_user(&rules.join(" ")) else { return Ok(()) };
        let text = String::from_utf8(made.describe()).unwrap();
        let again = user(&text);
        prop_assert_eq!(String::from_utf8(again.describe()).unwrap(), text);
        for line in LINES {
            for database in 0..2 {
                let line = Line { database, ..Line::new(&commands, line) };
                prop_assert_eq!(made.decide(&line), again.decide(&line));
                prop_assert!(!made.is_unrestricted() || made.decide(&line).is_ok());
            }
        }
        let parsed = file::parse(&made.line(), NOTHING, &commands).unwrap();
        prop_assert_eq!(parsed[0].line(), made.line());
    }

    #[test]
    fn commands_are_allowed_as_the_last_rule_about_them_says(rules in prop::collection::vec(rule(), 0..20)) {
        let commands = example();
        let rules: Vec<&str> = rules.into_iter().filter(|rule| rule.starts_with(['+', '-'])).collect();
        let made = user(&["allkeys allchannels", &rules.join(" ")].join(" "));
        for line in LINES {
            let parsed = Line::new(&commands, line);
            prop_assert_eq!(made.decide(&parsed).is_ok(), model_allows(&rules, &parsed, &commands), "{}", line);
        }
    }

    #[test]
    fn rules_of_any_bytes_parse_or_are_refused(words in prop::collection::vec(any::<Vec<u8>>(), 0..6)) {
        let commands = example();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let _ = User::new(b"u", NOTHING, &commands).with_rules(&words, NOTHING, &commands);
        let _ = file::parse(&words.concat(), NOTHING, &commands);
    }
}
