//! Manual pages and completions, out of the same descriptions as the help.

use std::{fs, io, path::Path, process::ExitCode};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

/// The whole command line: the subcommands here pass their words on, so each is described where it is read.
fn whole() -> Command {
    let mut whole = crate::Arguments::command();
    let described = [dunlin_server::config::command()].into_iter().chain(dunlin_ops::commands());
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
    let write = |name: &str, command: &Command| {
        let mut page = Vec::new();
        // No date: the same program writes the same pages.
        Man::new(command.clone()).title(name.to_uppercase()).date("").render(&mut page)?;
        fs::write(directory.join(format!("{name}.1")), page)
    };
    write("dunlin", &whole)?;
    for command in whole.get_subcommands().filter(|command| command.get_name() != "help") {
        write(&format!("dunlin-{}", command.get_name()), command)?;
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
    fn manual_has_a_page_for_each_subcommand_and_every_directive() {
        let directory = std::env::temp_dir().join(format!("dunlin-man-{}", std::process::id()));
        write_pages(&directory).unwrap();
        let text = |name: &str| fs::read_to_string(directory.join(format!("dunlin{name}.1"))).unwrap();
        for name in [
            "", "-server", "-top", "-why", "-doctor", "-health", "-adopt", "-cluster", "-check", "-convert",
            "-bench",
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
        fs::remove_dir_all(directory).unwrap();
    }
}
