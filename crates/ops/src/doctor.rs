//! `dunlin doctor`: this machine and a running server, for a bug report. The report has no secret, no key and no value.

use clap::Parser;
use dunlin_bench::{server_flags::ServerFlags, target::Client};
use dunlin_server::{
    config,
    machine::{self, Finding},
};

use crate::server::{ask, ask_text, connect, strings};

const EXAMPLES: &str = "\
Examples:
  dunlin doctor                       this machine, and the server on port 6379
  dunlin doctor -h db1 -a PASSWORD    another one's server; the machine is still this one
  dunlin doctor --dir /var/lib/dunlin the disk under this directory, too";

/// Prints what of this machine matters to a server, and the state of a running one.
///
/// Passwords, keys and values are left out, so that the text can be shown to others.
#[derive(Debug, Parser)]
#[command(name = "doctor", bin_name = "dunlin doctor", version, disable_help_flag = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: ServerFlags,
    /// Measure the disk under this directory [default: none is measured]
    #[arg(long, value_name = "PATH")]
    dir: Option<std::path::PathBuf>,
    /// Show this help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    dunlin_print::say!("dunlin {}\n\n# Machine", env!("CARGO_PKG_VERSION"));
    let mut findings = machine::findings();
    findings.extend(arguments.dir.as_deref().map(machine::disk));
    for finding in &findings {
        dunlin_print::say!("{}", line(finding));
    }
    let mut client = match connect(&arguments.server) {
        Ok(client) => client,
        Err(reason) => {
            dunlin_print::say!("\n# Server\nnot reached: {reason}");
            return Ok(());
        }
    };
    for section in [
        "server",
        "clients",
        "memory",
        "persistence",
        "stats",
        "replication",
        "cpu",
        "errorstats",
        "keyspace",
    ] {
        match ask_text(&mut client, &["INFO", section]) {
            Ok(text) => dunlin_print::say!("\n{}", text.replace("\r\n", "\n").trim_end()),
            Err(reason) => dunlin_print::say!("\n# {section}\n{reason}"),
        }
    }
    dunlin_print::say!("\n# Configuration that differs from the default\n{}", configuration(&mut client)?);
    dunlin_print::say!(
        "\n# Latency\n{}",
        ask_text(&mut client, &["LATENCY", "DOCTOR"]).unwrap_or_else(|reason| reason).trim_end()
    );
    dunlin_print::say!("\n# The last minute");
    match ask(&mut client, &["RECORDER", "WHY"]) {
        // Slow commands have keys in them, and so have the sentences about hot keys.
        Ok(lines) => strings(&lines)
            .iter()
            .filter(|line| !line.contains("(client ") && !line.to_lowercase().contains("one key, "))
            .for_each(|line| dunlin_print::say!("{line}")),
        Err(reason) => dunlin_print::say!("{reason}"),
    }
    Ok(())
}

/// `ok      clock source: tsc`, or what to do.
fn line(Finding { name, state, advice }: &Finding) -> String {
    match advice {
        None => format!("ok      {name}: {state}"),
        Some(advice) => format!("LOOK    {name}: {state}\n        {advice}"),
    }
}

fn configuration(client: &mut Client) -> Result<String, String> {
    let values = match ask(client, &["CONFIG", "GET", "*"]) {
        Ok(values) => strings(&values),
        Err(reason) => return Ok(reason),
    };
    let pairs = values.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str()));
    let shown: Vec<String> = pairs.filter_map(|(name, value)| config::difference(name, value)).collect();
    Ok(if shown.is_empty() { "nothing".to_owned() } else { shown.join("\n") })
}
