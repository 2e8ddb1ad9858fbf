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
        "tls",
        "cpu",
        "errorstats",
        "keyspace",
    ] {
        match ask_text(&mut client, &["INFO", section]) {
            Ok(text) => dunlin_print::say!("\n{}", text.replace("\r\n", "\n").trim_end()),
            Err(reason) => dunlin_print::say!("\n# {section}\n{reason}"),
        }
    }
    if let Ok(info) = ask_text(&mut client, &["INFO", "tls"]) {
        let certificates = certificates(&info);
        if !certificates.is_empty() {
            dunlin_print::say!("\n# Certificates");
            certificates.iter().for_each(|finding| dunlin_print::say!("{}", line(finding)));
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

const DAY_S: i64 = 86_400;
/// Days before its expiry from which on a certificate is to be renewed: as the alert of deploy/prometheus.
const RENEWAL_DAYS: i64 = 30;

/// The server's certificates by `INFO tls`: how long each is good.
fn certificates(info: &str) -> Vec<Finding> {
    let kinds = [
        ("server", "server's certificate"),
        ("client", "certificate for links to other servers"),
        ("ca", "trusted certificate that expires first"),
    ];
    let of = |(kind, name): (&str, &'static str)| {
        let field = format!("tls_{kind}_cert_expires_in_seconds:");
        let left = info.lines().find_map(|line| line.strip_prefix(&field)?.trim().parse::<i64>().ok())?;
        let (days, hours) = (left.abs() / DAY_S, left.abs() % DAY_S / 3600);
        let (state, advice) = match left {
            // There is none.
            0 => return None,
            ..0 => (format!("expired {days} days and {hours} hours ago"), "new connections fail: renew it"),
            _ => (format!("expires in {days} days and {hours} hours"), "renew it"),
        };
        let advice = (left < RENEWAL_DAYS * DAY_S).then(|| {
            format!(
                "{advice}, and load it with CONFIG SET of its file, or let tls-auto-reload-interval do it"
            )
        });
        Some(Finding { name, state, advice })
    };
    kinds.into_iter().filter_map(of).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_tells_how_long_certificates_are_good() {
        let info = "# TLS\r\ntls_server_cert_serial:01\r\ntls_server_cert_expires_in_seconds:2592000\r\n\
            tls_client_cert_expires_in_seconds:0\r\ntls_ca_cert_expires_in_seconds:-3600\r\n";
        let lines: Vec<String> = certificates(info).iter().map(line).collect();
        assert_eq!(lines[0], "ok      server's certificate: expires in 30 days and 0 hours");
        assert!(lines[1].starts_with(
            "LOOK    trusted certificate that expires first: expired 0 days and 1 hours ago\n        new connections fail"
        ));
        assert_eq!(lines.len(), 2, "there is no certificate for links");
        let soon = certificates("tls_server_cert_expires_in_seconds:2591999\r\n");
        assert_eq!(soon[0].state, "expires in 29 days and 23 hours");
        assert!(soon[0].advice.is_some());
        assert!(certificates("").is_empty());
    }
}
