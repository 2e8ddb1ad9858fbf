//! Any bytes as an ACL file, and as rules of one user: they are refused with line and reason, or make users whose rules,
//! written down, make the same users.

#![no_main]

use std::sync::LazyLock;

use dunlin_acl::{CommandRow, Commands, User, UserDefaults, file};
use dunlin_engine::{
    command::{CommandTable, describe::CATEGORIES},
    commands::FAMILIES,
};
use libfuzzer_sys::fuzz_target;

static COMMANDS: LazyLock<Commands> = LazyLock::new(|| {
    let table = CommandTable::new(FAMILIES);
    let rows: Vec<_> = table
        .entries()
        .iter()
        .map(|entry| (entry.full_name(), entry.categories(), entry.subcommands.clone()))
        .collect();
    let row =
        |(name, categories, subcommands): &'static (String, Vec<&'static str>, std::ops::Range<usize>)| {
            CommandRow { name, categories, subcommands: subcommands.clone() }
        };
    Commands::new(CATEGORIES, Vec::leak(rows).iter().map(row))
});

const DEFAULTS: UserDefaults = UserDefaults { all_channels: false };

fn check_again(user: &User) {
    let again = file::parse(&user.line(), DEFAULTS, &COMMANDS).expect("own lines are good");
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].line(), user.line());
    assert_eq!(again[0].is_unrestricted(), user.is_unrestricted());
}

fuzz_target!(|data: &[u8]| {
    match file::parse(data, DEFAULTS, &COMMANDS) {
        Ok(users) => users.iter().for_each(check_again),
        Err(errors) => {
            assert!(!errors.is_empty());
            let lines = data.split(|byte| *byte == b'\n').count();
            assert!(errors.iter().all(|error| (1..=lines).contains(&error.line)));
            file::describe_errors("file", &errors);
        }
    }
    let words: Vec<&[u8]> = data.split(|byte| *byte == b' ').collect();
    match User::new(b"u", DEFAULTS, &COMMANDS).with_rules(&words, DEFAULTS, &COMMANDS) {
        Ok(user) => check_again(&user),
        Err(error) => assert!(!error.text().is_empty()),
    }
});
