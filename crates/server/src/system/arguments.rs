//! The command line of the process, which every user of the machine can read.

use std::fs;

/// Overwrites the words behind flags whose name is secret (`--requirepass hush`) in the memory that the system shows.
/// To be called while there is one thread. Nothing happens if the system does not say where that memory is.
pub(crate) fn hide_secrets(is_secret: fn(&[u8]) -> bool) {
    let (Ok(words), Some((start, end))) = (fs::read("/proc/self/cmdline"), argument_area()) else { return };
    if words.len() > end - start {
        return;
    }
    for (at, length) in secret_words(&words, is_secret) {
        // SAFETY: the area is the process's own and writable, it holds these words, and no other thread reads them: the
        // standard library copies words when it is asked for them.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(start + at).write_bytes(b'x', length) };
    }
}

/// The places and lengths of the words behind secret flags.
fn secret_words(words: &[u8], is_secret: fn(&[u8]) -> bool) -> Vec<(usize, usize)> {
    let (mut found, mut at, mut is_hidden) = (Vec::new(), 0, false);
    for word in words.split(|byte| *byte == 0) {
        match word.strip_prefix(b"--") {
            Some(flag) => {
                let name = flag.split(|byte| *byte == b'=').next().unwrap_or(flag);
                is_hidden = is_secret(name);
                if is_hidden && name.len() < flag.len() {
                    found.push((at + 2 + name.len() + 1, flag.len() - name.len() - 1));
                }
            }
            None if is_hidden && !word.is_empty() => found.push((at, word.len())),
            None => {}
        }
        at += word.len() + 1;
    }
    found
}

/// The addresses between which the words are: fields 48 and 49 of `/proc/self/stat`.
fn argument_area() -> Option<(usize, usize)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the name, in parentheses, whatever is in it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_ascii_whitespace().skip(45);
    let start = fields.next()?.parse().ok()?;
    let end = fields.next()?.parse().ok()?;
    (start != 0 && start < end).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_words_are_found() {
        let line = b"dunlin\0server\0--port\x007000\0--requirepass\0hush now\0--user\0alice\0>pw\0--requirepass=x\0--hz\x005\0";
        let found = secret_words(line, |name| matches!(name, b"requirepass" | b"user"));
        let words: Vec<&[u8]> = found.iter().map(|(at, length)| &line[*at..][..*length]).collect();
        assert_eq!(words, [&b"hush now"[..], b"alice", b">pw", b"x"]);
    }

    #[test]
    fn argument_area_is_that_of_this_process() {
        let (start, end) = argument_area().unwrap();
        let words = fs::read("/proc/self/cmdline").unwrap();
        assert!(words.len() <= end - start);
    }
}
