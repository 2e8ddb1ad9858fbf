//! Manual pages and completions, out of the same descriptions as the help.

use std::{fs, io, path::Path, process::ExitCode};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

/// The whole command line: the subcommands here pass their words on, so each is described where it is read.
fn whole() -> Command {
    let mut whole = crate::Arguments::command();
    let described = [dunlin_server::config::command(), dunlin_bench::command()];
    let described = described.into_iter().chain(dunlin_ops::commands()).chain(dunlin_tools::commands());
    for command in described {
        let name = command.get_name().to_owned();
        whole = whole.mut_subcommand(name, |_| command);
    }
    whole
}

/// Prints completions.
pub(crate) fn complete(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut whole(), "dunlin", &mut script);
    dunlin_print::text(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

/// Writes `dunlin.1` and a page for each subcommand.
pub(crate) fn write_manual(directory: &Path) -> ExitCode {
    match write_pages(directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dunlin: {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}

fn write_pages(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut whole = whole();
    whole.build();
    write_page(directory, "dunlin", &whole)
}

/// Writes the page of a command, and those of its subcommands.
fn write_page(directory: &Path, name: &str, command: &Command) -> io::Result<()> {
    let mut page = Vec::new();
    // No date: the same program writes the same pages.
    Man::new(command.clone()).title(name.to_uppercase()).date("").render(&mut page)?;
    fs::write(directory.join(format!("{name}.1")), page)?;
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        write_page(directory, &format!("{name}-{}", command.get_name()), command)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_sound() {
        whole().debug_assert();
    }

    #[test]
    fn completions_know_the_options_of_each_command_and_the_words_of_directives() {
        let mut script = Vec::new();
        clap_complete::generate(Shell::Bash, &mut whole(), "dunlin", &mut script);
        let script = String::from_utf8(script).unwrap();
        let options_of = |command: &str| {
            let start = script
                .find(&format!("        dunlin__subcmd__{command})"))
                .or_else(|| script.find(&format!("        dunlin__{command})")));
            let start = start.unwrap_or_else(|| panic!("{command} has no completions"));
            script[start..].lines().nth(1).unwrap().to_owned()
        };
        assert!(options_of("check").contains("--fix"));
        assert!(options_of("convert").contains("--rdb-version"));
        assert!(script.contains("allkeys-lfu"), "words of a directive");
    }

    #[test]
    fn manual_has_a_page_for_each_subcommand_and_every_directive() {
        let directory = std::env::temp_dir().join(format!("dunlin-man-{}", std::process::id()));
        write_pages(&directory).unwrap();
        let text = |name: &str| fs::read_to_string(directory.join(format!("dunlin{name}.1"))).unwrap();
        for name in [
            "",
            "-server",
            "-top",
            "-why",
            "-doctor",
            "-health",
            "-adopt",
            "-cluster",
            "-check",
            "-convert",
            "-bench",
            "-bench-record",
            "-bench-replay",
            "-cluster-status",
        ] {
            assert!(text(name).contains(".SH NAME"), "{name}");
        }
        for directive in dunlin_server::config::DIRECTIVES.iter() {
            assert!(
                text("-server").replace('\\', "").contains(&format!("--{}", directive.name)),
                "{}",
                directive.name
            );
        }
        // Options of the commands that read their words themselves.
        for (name, option) in [
            ("-bench", "requests"),
            ("-check", "fix"),
            ("-convert", "rdb-version"),
            ("-bench-replay", "speed"),
        ] {
            assert!(text(name).replace('\\', "").contains(option), "{name} lacks {option}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
