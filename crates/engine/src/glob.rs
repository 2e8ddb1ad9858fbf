//! Glob patterns as the protocol has them: `*`, `?`, `[abc]`, `[^a-z]`, `\x`.

/// Whether `text` matches `pattern`.
///
/// Iterative, with one point to go back to: after a `*` only the last star needs another try, so the
/// cost is O(pattern × text) at worst and the stack does not grow with hostile patterns.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_folded(pattern, text, false)
}

/// Whether `text` matches `pattern` in any letter case.
pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_folded(pattern, text, true)
}

/// The text when a pattern has nothing but itself to match.
pub fn literal(pattern: &[u8]) -> Option<&[u8]> {
    (!pattern.iter().any(is_special)).then_some(pattern)
}

/// The hash tag, braces included, that every key has which matches: what stands in front of its end
/// is literal.
pub fn hash_tag(pattern: &[u8]) -> Option<&[u8]> {
    let open = pattern.iter().position(|byte| *byte == b'{')?;
    let length = pattern[open..].iter().position(|byte| *byte == b'}')?;
    let end = open + length + 1;
    (length > 1 && !pattern[..end].iter().any(is_special)).then_some(&pattern[open..end])
}

fn is_special(byte: &u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

fn matches_folded(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    if text.is_empty() {
        // Several stars do not match the empty text: so it is in the reference server.
        return matches!(pattern, b"" | b"*");
    }
    let (mut at, mut next) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            while pattern.get(at) == Some(&b'*') {
                at += 1;
            }
            if at == pattern.len() {
                return true;
            }
            retry = Some((at, next));
            continue;
        }
        match text.get(next) {
            None if at == pattern.len() => return true,
            None => return false,
            Some(&byte) => {
                if let Some(behind) = match_one(pattern, at, byte, ignore_case) {
                    at = behind;
                    next += 1;
                    continue;
                }
            }
        }
        match &mut retry {
            Some((star, from)) => {
                *from += 1;
                (at, next) = (*star, *from);
            }
            None => return false,
        }
    }
}

/// Matches one byte against the element at `at`; the place behind the element.
fn match_one(pattern: &[u8], at: usize, byte: u8, ignore_case: bool) -> Option<usize> {
    let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => {
            let mut next = at + 1;
            let negated = pattern.get(next) == Some(&b'^');
            next += usize::from(negated);
            let mut found = false;
            loop {
                match pattern.get(next) {
                    // A class that is not closed ends with the pattern.
                    None => break,
                    Some(b']') => {
                        next += 1;
                        break;
                    }
                    Some(b'\\') if pattern.len() > next + 1 => {
                        found |= fold(pattern[next + 1]) == fold(byte);
                        next += 2;
                    }
                    Some(&low) if pattern.get(next + 1) == Some(&b'-') && pattern.len() > next + 2 => {
                        // Bytes have a sign here, as in Redis where a C compiler's `char` has one.
                        let (low, high) = (fold(low) as i8, fold(pattern[next + 2]) as i8);
                        found |= (low.min(high)..=low.max(high)).contains(&(fold(byte) as i8));
                        next += 3;
                    }
                    Some(&other) => {
                        found |= fold(other) == fold(byte);
                        next += 1;
                    }
                }
            }
            (found != negated).then_some(next)
        }
        b'\\' if pattern.len() > at + 1 => (fold(pattern[at + 1]) == fold(byte)).then_some(at + 2),
        other => (fold(other) == fold(byte)).then_some(at + 1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_as_documented() {
        for (pattern, text, expected) in [
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "hllo", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("*", "", true),
            ("**", "", false),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXbY", false),
            ("*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("[abc", "a", true),
            ("[\\]]", "]", true),
            ("[abc", "b", true),
            ("a**b", "ab", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        // From −76 to 9.
        assert!(!matches(b"[\xb4-\x09]", b"9") && matches(b"[\xb4-\x09]", b"\xff"));
        assert!(matches_ignoring_case(b"MAX*[A-C]", b"maxmemory-b"));
        assert!(!matches(b"MAX*", b"maxmemory"));
    }

    proptest! {
        #[test]
        fn any_pattern_ends(pattern: Vec<u8>, text: Vec<u8>) {
            let _ = matches_ignoring_case(&pattern, &text);
        }

        #[test]
        fn a_text_matches_its_own_prefix_and_a_star(text: Vec<u8>, cut in 0usize..32) {
            let mut pattern = Vec::new();
            for byte in text.iter().take(cut) {
                pattern.extend([b'\\', *byte]);
            }
            pattern.push(b'*');
            prop_assert!(matches(&pattern, &text));
        }
    }

    #[test]
    fn literal_beginnings_are_recognized() {
        for (pattern, expected) in [
            ("{user}:*", Some("{user}")),
            ("a{user}", Some("{user}")),
            ("a{{b}*", Some("{{b}")),
            ("*{user}", None),
            ("{us?r}", None),
            ("{}{user}*", None),
            ("{user*", None),
            ("{a\\}b}", None),
            ("user", None),
        ] {
            assert_eq!(hash_tag(pattern.as_bytes()), expected.map(str::as_bytes), "{pattern}");
        }
        assert_eq!(literal(b"a]{b}"), Some(&b"a]{b}"[..]));
        assert_eq!(literal(b"a[b]"), None);
    }
}
