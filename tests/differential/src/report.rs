//! A failing stream as a transcript that can be pasted into redis-cli.

use std::fmt::Write;

use dunlin_test_support::resp::quoted;

use crate::generate::Step;
use crate::grammar::Action;
use crate::run::Mismatch;

/// A command as redis-cli reads it.
pub fn command_line(arguments: &[Vec<u8>]) -> String {
    let is_plain = |argument: &Vec<u8>| {
        !argument.is_empty()
            && argument.len() < 80
            && argument.iter().all(|b| b.is_ascii_graphic() && !b"\"'\\".contains(b))
    };
    let shown: Vec<String> = arguments
        .iter()
        .map(|argument| {
            if is_plain(argument) { String::from_utf8_lossy(argument).into_owned() } else { quoted(argument) }
        })
        .collect();
    shown.join(" ")
}

/// The steps, then each server's reply to the last.
pub fn transcript(steps: &[Step], mismatch: &Mismatch) -> String {
    let mut text = String::new();
    for step in steps {
        let note = match step.action {
            Action::Raw => "raw bytes ",
            _ => "",
        };
        let after = match step.action {
            Action::LetExpire => "   (then 4 ms pass)",
            Action::Iterate { .. } => "   (followed to cursor 0)",
            _ => "",
        };
        let _ = writeln!(text, "  > {note}{}{after}", command_line(&step.arguments));
    }
    if mismatch.at >= steps.len() {
        let _ = writeln!(text, "  at the end:\n  > {}", command_line(&mismatch.command));
    }
    let indent = |reply: &str| reply.replace('\n', "\n            ");
    let _ = writeln!(text, "    ours:   {}", indent(&mismatch.ours));
    let _ = writeln!(text, "    oracle: {}", indent(&mismatch.oracle));
    text
}
