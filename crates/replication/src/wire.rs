//! Requests as the wire has them.

/// Writes a command as a RESP array of bulk strings.
pub fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns one command.
pub fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    command(&mut out, words);
    out
}

/// Takes a line off the front of `input`: the line without its end, and the bytes that it took. `None` while it is incomplete.
pub(crate) fn line(input: &[u8]) -> Option<(&[u8], usize)> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    let line = &input[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

/// Parses an unsigned decimal number.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
