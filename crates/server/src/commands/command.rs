//! COMMAND: the command table, as clients and tools ask for it.

use dunlin_engine::{
    command::{
        Args, Argument, Arity, Command, CommandError, CommandResult, Entry, Flags, Group, Run, describe,
    },
    glob::Glob,
};
use dunlin_resp::ReplyBuffer;

use crate::executor::{Handler, ServerContext};

pub(super) const COMMANDS: &[Command] = &[COMMAND];

const COMMAND: Command = Command {
    name: "command",
    summary: "Describes all commands.",
    since: "2.8.13",
    complexity: "O(n) in the number of commands",
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(all)),
    tips: &["nondeterministic_output_order"],
    subcommands: &[
        Command {
            name: "count",
            summary: "Counts the commands of this server.",
            since: "2.8.13",
            arity: Arity::Exactly(2),
            run: Run::Host(&Handler(count)),
            ..SUBCOMMAND
        },
        Command {
            name: "docs",
            summary: "Documents some commands, or all.",
            since: "7.0.0",
            complexity: "O(n) in the number of commands asked for",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(docs)),
            args: &[Argument::string("command-name").optional().multiple()],
            tips: &["nondeterministic_output_order"],
            ..SUBCOMMAND
        },
        Command {
            name: "getkeys",
            summary: "Finds the keys in a whole command line.",
            since: "2.8.13",
            complexity: "O(n) in the number of words",
            arity: Arity::AtLeast(4),
            run: Run::Host(&Handler(get_keys)),
            args: FULL_COMMAND,
            ..SUBCOMMAND
        },
        Command {
            name: "getkeysandflags",
            summary: "Finds the keys in a whole command line and tells how each is used.",
            since: "7.0.0",
            complexity: "O(n) in the number of words",
            arity: Arity::AtLeast(4),
            run: Run::Host(&Handler(get_keys_and_flags)),
            args: FULL_COMMAND,
            ..SUBCOMMAND
        },
        Command {
            name: "help",
            summary: "Shows this help.",
            since: "5.0.0",
            arity: Arity::Exactly(2),
            run: Run::Host(&Handler(super::help)),
            ..SUBCOMMAND
        },
        Command {
            name: "info",
            summary: "Describes some commands, or all.",
            since: "2.8.13",
            complexity: "O(n) in the number of commands asked for",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(info)),
            args: &[Argument::string("command-name").optional().multiple()],
            tips: &["nondeterministic_output_order"],
            ..SUBCOMMAND
        },
        Command {
            name: "list",
            summary: "Names the commands of this server, or those of a category or pattern.",
            since: "7.0.0",
            complexity: "O(n) in the number of commands",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(list)),
            args: &[Argument::one_of(
                "filterby",
                &[
                    Argument::string("module-name").after("MODULE"),
                    Argument::string("category").after("ACLCAT"),
                    Argument::pattern("pattern").after("PATTERN"),
                ],
            )
            .after("FILTERBY")
            .optional()],
            tips: &["nondeterministic_output_order"],
            ..SUBCOMMAND
        },
    ],
    ..SUBCOMMAND
};

const SUBCOMMAND: Command = Command {
    group: Group::Server,
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::CONNECTION),
    ..Command::DEFAULT
};

const FULL_COMMAND: &[Argument] =
    &[Argument::string("command"), Argument::string("arg").optional().multiple()];

type Context<'a, 'k> = ServerContext<'a, 'k>;

fn all(context: &mut Context<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let table = &context.shared.commands;
    reply.array(table.commands().count());
    table.commands().for_each(|entry| describe::write_info(table, entry, reply));
    Ok(())
}

fn count(context: &mut Context<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.count(context.shared.commands.commands().count());
    Ok(())
}

fn info(context: &mut Context<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if args.is_empty() {
        return all(context, args, reply);
    }
    let table = &context.shared.commands;
    let names = args.take_rest();
    reply.array(names.len());
    for name in names {
        match table.find_full(name) {
            Some(entry) => describe::write_info(table, entry, reply),
            None => reply.null(),
        }
    }
    Ok(())
}

fn docs(context: &mut Context<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let table = &context.shared.commands;
    let names = args.take_rest();
    let entries: Vec<&Entry> = if names.is_empty() {
        table.commands().collect()
    } else {
        names.iter().filter_map(|name| table.find_full(name)).collect()
    };
    reply.map(entries.len());
    entries.into_iter().for_each(|entry| describe::write_docs(table, entry, reply));
    Ok(())
}

/// Which commands LIST is to show.
type Filter<'a> = Box<dyn Fn(&Entry) -> bool + 'a>;

fn list(context: &mut Context<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let table = &context.shared.commands;
    let names: Vec<String> = if args.is_empty() {
        table.entries().iter().map(Entry::full_name).collect()
    } else {
        if !args.token("FILTERBY") {
            return Err(CommandError::Syntax);
        }
        let filter: fn(&[u8]) -> Filter<'_> = if args.token("MODULE") {
            |_| Box::new(|_| false)
        } else if args.token("ACLCAT") {
            |category| {
                Box::new(|entry| {
                    entry.categories().iter().any(|own| own.as_bytes().eq_ignore_ascii_case(category))
                })
            }
        } else if args.token("PATTERN") {
            |pattern| {
                // No name is as long as what a pattern that is too complex would match.
                let glob = Glob::ignoring_case(pattern).unwrap_or(Glob::NOTHING);
                Box::new(move |entry| glob.matches(entry.full_name().as_bytes()))
            }
        } else {
            return Err(CommandError::Syntax);
        };
        let filter = filter(args.word());
        args.finish()?;
        let entries = table.entries().iter().filter(|entry| filter(entry));
        entries.map(Entry::full_name).collect()
    };
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

fn get_keys(context: &mut Context<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    find_keys(context, args, false, reply)
}

fn get_keys_and_flags(
    context: &mut Context<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    find_keys(context, args, true, reply)
}

fn find_keys(
    context: &mut Context<'_, '_>,
    args: &mut Args<'_>,
    with_flags: bool,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let table = &context.shared.commands;
    let words = args.take_rest();
    let entry = table
        .find(words[0])
        .filter(|entry| !matches!(entry.command.run, Run::Container) || words.len() > 1)
        .map(|entry| table.resolve(entry, words))
        .filter(|entry| !matches!(entry.command.run, Run::Container))
        .ok_or(CommandError::text("ERR Invalid command specified"))?;
    if !entry.command.keys.iter().any(|spec| spec.is_of_keys()) {
        return Err(CommandError::text("ERR The command has no key arguments"));
    }
    if !entry.command.arity.accepts(words.len()) {
        return Err(CommandError::text("ERR Invalid number of arguments specified for command"));
    }
    let mut specs = entry.command.keys.iter().filter(|spec| spec.is_of_keys());
    let is_miscounted = specs.any(|spec| spec.is_miscounted(words));
    let has_keys = !is_miscounted && entry.key_positions(words).next().is_some();
    if !has_keys && !entry.command.flags.has(Flags::NO_MANDATORY_KEYS) {
        return Err(CommandError::text("ERR Invalid arguments specified for command"));
    }
    describe::write_keys(entry, words, with_flags, reply);
    Ok(())
}
