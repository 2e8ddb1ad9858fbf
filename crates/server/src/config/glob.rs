//! Glob patterns as CONFIG GET and `include` take them: `*`, `?`, `[a-z]`, `[^a]`, `\` for a literal.
//! ASCII letters match without regard to case when asked.

/// Whether all of `text` matches `pattern`. O(pattern × text) at worst: only the last star is retried.
pub fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    let (mut pattern_at, mut text_at) = (0, 0);
    // Where to go on when the literal part after the last star does not fit: one more byte for the star.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let rest = pattern.get(pattern_at..).unwrap_or_default();
        if let [b'*', ..] = rest {
            pattern_at += 1;
            retry = Some((pattern_at, text_at));
            continue;
        }
        let step = match text.get(text_at) {
            None if rest.is_empty() => return true,
            None => return false,
            Some(&byte) => match_one(rest, byte, ignore_case),
        };
        if let Some(length) = step {
            pattern_at += length;
            text_at += 1;
        } else {
            let Some((after_star, from)) = retry else { return false };
            pattern_at = after_star;
            text_at = from + 1;
            retry = Some((after_star, text_at));
        }
    }
}

/// How many bytes of the pattern match `byte`; `None` when they do not.
fn match_one(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
    let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (fold(*literal) == fold(byte)).then_some(2),
        [b'[', class @ ..] => match_class(class, fold(byte), fold).map(|length| length + 1),
        [literal, ..] => (fold(*literal) == fold(byte)).then_some(1),
    }
}

/// `class` is what follows `[`; an unclosed class reaches to the end of the pattern.
fn match_class(class: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> Option<usize> {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match class.get(at..).unwrap_or_default() {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => {
                found |= fold(*literal) == byte;
                at += 2;
            }
            [from, b'-', to, ..] if *to != b']' => {
                let (from, to) = (fold(*from), fold(*to));
                found |= (from.min(to)..=from.max(to)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= fold(*literal) == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

/// Whether `text` has a character that [`matches`] treats specially.
pub fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "port", true),
            ("", "port", false),
            ("max*", "maxmemory", true),
            ("MAX*", "maxmemory", true),
            ("*memory", "maxmemory", true),
            ("*memory", "maxmemory-policy", false),
            ("*m*y", "maxmemory", true),
            ("h?", "hz", true),
            ("h?", "h", false),
            ("[m]ax*", "maxclients", true),
            ("[^m]ax*", "maxclients", false),
            ("[a-m]z", "hz", true),
            ("[m-a]z", "hz", true),
            ("[abc", "b", true),
            (r"\*", "*", true),
            (r"\*", "x", false),
            ("a**b", "ab", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), true), expected, "{pattern} {text}");
        }
        assert!(!matches(b"A", b"a", false));
    }

    proptest! {
        #[test]
        fn any_pattern_ends(pattern: Vec<u8>, text: Vec<u8>) {
            let _ = matches(&pattern, &text, true);
        }

        #[test]
        fn a_text_matches_its_own_prefix_and_a_star(text: Vec<u8>, cut in 0usize..32) {
            let mut pattern = Vec::new();
            for byte in text.iter().take(cut) {
                pattern.extend([b'\\', *byte]);
            }
            pattern.push(b'*');
            prop_assert!(matches(&pattern, &text, false));
        }
    }
}
