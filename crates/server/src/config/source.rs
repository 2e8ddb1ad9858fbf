//! Configuration text from files, standard input and flags into a [`Config`].
//!
//! Lines apply in order, so the last one wins. `include PATH` reads another file in its place; the
//! path may be a glob pattern, and a relative one starts at the directory of the file that names it.
//! Every mistake is reported, with its place and what would be right, so that a file of another server takes one
//! round of corrections.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dunlin_engine::glob::{self, Glob};

use super::directive::ValueError;
use super::foreign::{self, is_secret};
use super::lines::{Origin, RenameLine, UserLine};
use super::settings::Config;
use super::table::{find, names};
use super::values::SavePoint;
use super::words;

/// Mistakes that are reported at most: a file that is not a configuration has one in every line.
const MISTAKES_MAX: usize = 100;
/// Files that include one another at most this deep; more is taken for a circle.
const INCLUDE_DEPTH_MAX: usize = 16;

/// Why the server cannot start with this configuration. Each mistake is one line that says what to do.
#[derive(Debug)]
pub enum LoadError {
    /// A file that cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The line that includes it.
        from: Option<Origin>,
        /// The system's reason.
        error: io::Error,
    },
    /// A line that cannot be obeyed.
    Line {
        /// Its origin.
        origin: Origin,
        /// The line; passwords are left out.
        line: String,
        /// The fault, and the right form.
        reason: String,
    },
    /// The command line has a word where none belongs.
    Usage(String),
    /// Several mistakes, none of which is this one.
    Several(Vec<LoadError>),
}

impl LoadError {
    /// The mistakes of a configuration as one, if there are any.
    pub(super) fn all(mistakes: Vec<Self>) -> Result<(), Self> {
        let mut all = Vec::new();
        for mistake in mistakes {
            match mistake {
                Self::Several(several) => all.extend(several),
                one => all.push(one),
            }
        }
        match all.pop() {
            None => Ok(()),
            Some(one) if all.is_empty() => Err(one),
            Some(last) => {
                all.push(last);
                all.truncate(MISTAKES_MAX);
                Err(Self::Several(all))
            }
        }
    }

    /// How many mistakes it is.
    fn count(&self) -> usize {
        match self {
            Self::Several(several) => several.len(),
            _ => 1,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, from, error } => {
                if let Some(from) = from {
                    write!(out, "{from}: ")?;
                }
                write!(out, "cannot read {}: {}", path.display(), describe(error))
            }
            Self::Line { origin: Origin::Flag, line, reason } => write!(out, "--{line}: {reason}"),
            Self::Line { origin, line, reason } => write!(out, "{origin}: '{line}': {reason}"),
            Self::Usage(message) => out.write_str(message),
            Self::Several(mistakes) => {
                let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
                out.write_str(&lines.join("\n"))
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// The system's words for an error, without Rust's number of it: as strerror has them.
pub fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

/// Reads a file, and what it includes, into `config`.
pub fn load_file(path: &Path, config: &mut Config) -> Result<(), LoadError> {
    let unreadable = |error| LoadError::Unreadable { path: path.to_owned(), from: None, error };
    let text = std::fs::read(path).map_err(unreadable)?;
    load_text(&text, Some(path), config)
}

/// Reads text as if it were the contents of `path`, or of standard input.
pub fn load_text(text: &[u8], path: Option<&Path>, config: &mut Config) -> Result<(), LoadError> {
    load_nested(text, path, config, 0)
}

/// Reads one directive and its values, as a flag or a line has them.
pub fn load_words(origin: &Origin, line: &[Vec<u8>], config: &mut Config) -> Result<(), LoadError> {
    load_directive(origin, line, config, 0)
}

fn load_nested(text: &[u8], path: Option<&Path>, config: &mut Config, depth: usize) -> Result<(), LoadError> {
    let (mut mistakes, mut count) = (Vec::new(), 0);
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let origin = match path {
            Some(path) => Origin::File(path.to_owned(), index + 1),
            None => Origin::StandardInput(index + 1),
        };
        let loaded = match words::split(line) {
            Ok(words) if words.is_empty() => Ok(()),
            Ok(words) => load_directive(&origin, &words, config, depth),
            Err(unbalanced) => {
                let line = shown(line.trim_ascii());
                Err(LoadError::Line { origin, line, reason: unbalanced.to_string() })
            }
        };
        if let Err(mistake) = loaded {
            count += mistake.count();
            mistakes.push(mistake);
            if count >= MISTAKES_MAX {
                break;
            }
        }
    }
    LoadError::all(mistakes)
}

fn load_directive(
    origin: &Origin,
    line: &[Vec<u8>],
    config: &mut Config,
    depth: usize,
) -> Result<(), LoadError> {
    let fail = |reason: String| {
        let line = shown(&line.join(&b' '));
        Err(LoadError::Line { origin: origin.clone(), line, reason })
    };
    let Some((name, values)) = line.split_first() else { return Ok(()) };
    if name.eq_ignore_ascii_case(b"include") {
        return match values {
            [pattern] if depth < INCLUDE_DEPTH_MAX => include(origin, pattern, config, depth + 1),
            [_] => fail(format!(
                "files include one another more than {INCLUDE_DEPTH_MAX} deep: break the circle"
            )),
            _ => fail("include takes one path".to_owned()),
        };
    }
    if name.eq_ignore_ascii_case(b"rename-command") {
        let [name, other] = values else {
            return fail("rename-command takes a command and its new name, \"\" for none".to_owned());
        };
        let (origin, name, other) = (origin.clone(), name.clone(), other.clone());
        config.renames.push(RenameLine { origin, name, other });
        return Ok(());
    }
    if name.eq_ignore_ascii_case(b"user") {
        let [name, rules @ ..] = values else {
            return fail("user takes a name and rules".to_owned());
        };
        let (origin, name, rules) = (origin.clone(), name.clone(), rules.to_vec());
        config.users.push(UserLine { origin, name, rules });
        return Ok(());
    }
    if let Some(directive) = find(name) {
        // A single quoted argument may hold all the words, as with CONFIG SET.
        let points = config.save.clone();
        let assigned = match values {
            [argument] => directive.assign_argument(argument, config),
            _ => directive.assign(values, config),
        };
        if directive.name == "save" && assigned.is_ok() {
            add_save_points(points, config);
        }
        return assigned.or_else(|error| {
            let takes = directive.values();
            match error {
                ValueError::Invalid(reason) if !reason.contains(&takes) => {
                    let takes = directive.values_and_units();
                    fail(format!("{reason} ({}: {takes}; default {})", directive.name, directive.default))
                }
                error => fail(error.to_string()),
            }
        });
    }
    match foreign::load(origin, name, values, config) {
        Some(Ok(())) => Ok(()),
        Some(Err(why)) if *origin == Origin::Flag => {
            fail(format!("not supported: {}", why.replace("remove the line", "leave this option out")))
        }
        Some(Err(why)) => fail(format!("not supported: {why}")),
        None => fail(match nearest(name) {
            Some(near) => format!("unknown directive; did you mean {near}?"),
            None => "unknown directive; `dunlin server --help` lists all of them".to_owned(),
        }),
    }
}

/// A line with save points adds to those of lines before it, one without takes these back.
fn add_save_points(mut before: Vec<SavePoint>, config: &mut Config) {
    if config.save_is_loaded && !config.save.is_empty() {
        before.append(&mut config.save);
        config.save = before;
    }
    config.save_is_loaded = true;
}

fn include(origin: &Origin, pattern: &[u8], config: &mut Config, depth: usize) -> Result<(), LoadError> {
    let base = match origin {
        Origin::File(path, _) => path.parent().unwrap_or(Path::new("")),
        _ => Path::new(""),
    };
    let unreadable = |path: PathBuf, error| LoadError::Unreadable { path, from: Some(origin.clone()), error };
    let paths = if glob::literal(pattern).is_none() {
        expand(base, pattern).map_err(|(path, error)| unreadable(path, error))?
    } else {
        vec![base.join(OsStr::from_bytes(pattern))]
    };
    let mut mistakes = Vec::new();
    for path in paths {
        let loaded = match std::fs::read(&path) {
            Ok(text) => load_nested(&text, Some(&path), config, depth),
            Err(error) => Err(unreadable(path, error)),
        };
        mistakes.extend(loaded.err());
    }
    LoadError::all(mistakes)
}

/// The existing paths that a pattern names, in order. As in a shell, names that begin with a dot
/// match only patterns that do.
fn expand(base: &Path, pattern: &[u8]) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let start = if pattern.starts_with(b"/") { PathBuf::from("/") } else { base.to_owned() };
    let mut paths = vec![start];
    for part in pattern.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        // No file's name is as long as what a part that is too complex would match.
        let glob = glob::literal(part).is_none().then(|| Glob::new(part).unwrap_or(Glob::NOTHING));
        for path in paths {
            let Some(glob) = &glob else {
                next.push(path.join(OsStr::from_bytes(part)));
                continue;
            };
            let listed = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
            let entries = match std::fs::read_dir(listed) {
                Ok(entries) => entries,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    continue;
                }
                Err(error) => return Err((path, error)),
            };
            for entry in entries {
                let name = entry.map_err(|error| (path.clone(), error))?.file_name();
                let bytes = name.as_bytes();
                let hidden = bytes.starts_with(b".") && !part.starts_with(b".");
                if !hidden && glob.matches(bytes) {
                    next.push(path.join(name));
                }
            }
        }
        next.retain(|path| path.as_os_str().is_empty() || path.exists());
        next.sort();
        paths = next;
    }
    Ok(paths)
}

/// A line for an error message: passwords hidden, control characters escaped, cut if it is long.
fn shown(line: &[u8]) -> String {
    const LENGTH_MAX: usize = 200;
    let name = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    if is_secret(name) {
        return format!("{} (redacted)", String::from_utf8_lossy(name).to_ascii_lowercase());
    }
    let text = String::from_utf8_lossy(line.get(..LENGTH_MAX).unwrap_or(line));
    let mut shown: String = text.chars().flat_map(escape_control).collect();
    if line.len() > LENGTH_MAX {
        shown.push('…');
    }
    shown
}

/// A character, or its escape if it would disturb a line of text.
pub(crate) fn escape_control(character: char) -> impl Iterator<Item = char> {
    let escaped = character.is_control().then(|| character.escape_default());
    let plain = escaped.is_none().then_some(character);
    escaped.into_iter().flatten().chain(plain)
}

/// The known name that is at most two edits away.
fn nearest(name: &[u8]) -> Option<&'static str> {
    // Longer ones cannot be near, and the distance costs their length.
    if name.len() > 64 {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let near = names().map(|(known, _)| (edit_distance(&name, known.as_bytes()), known)).min()?;
    (near.0 <= 2 && near.0 < name.len()).then_some(near.1)
}

/// Levenshtein's distance, row by row. O(one × other).
fn edit_distance(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(other) {
            let here = (diagonal + usize::from(a != b)).min(left + 1).min(*cell + 1);
            diagonal = *cell;
            *cell = here;
            left = here;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;
    use proptest::prelude::*;

    fn load(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        let path = Path::new("/etc/dunlin.conf");
        load_text(text.as_bytes(), Some(path), &mut config).map_err(|error| error.to_string())?;
        Ok(config)
    }

    #[test]
    fn config_file_of_redis_loads() {
        let config = load(
            "# comment\n\nbind 127.0.0.1 -::1\r\nPORT 7000\nmaxmemory 100mb\nsave \"\"\nappendonly no\n\
             daemonize yes\nsupervised auto\nrequirepass \"a b\"\nunixsocketperm 700\nloglevel debug\n\
             client-output-buffer-limit normal 1mb 1kb 10\nclient-output-buffer-limit slave 1gb 0 0\nport 7001",
        )
        .unwrap();
        assert_eq!(config.bind, ["127.0.0.1", "-::1"]);
        assert_eq!(config.port, 7001, "the last line wins");
        assert_eq!(config.maxmemory, 100 << 20);
        assert_eq!(config.requirepass.bytes(), b"a b");
        assert_eq!(config.unixsocketperm, 0o700);
        assert_eq!(config.client_output_buffer_limit.normal.hard_bytes, 1 << 20);
        assert_eq!(config.client_output_buffer_limit.replica.hard_bytes, 1 << 30);
        assert_eq!(config.client_output_buffer_limit.pubsub.hard_bytes, 32 << 20);
    }

    #[test]
    fn save_points_add_up_and_an_empty_line_takes_them_back() {
        let save = |text: &str| {
            let points = load(text).unwrap().save;
            points.iter().map(|point| (point.seconds, point.changes)).collect::<Vec<_>>()
        };
        assert_eq!(save(""), [(3600, 1), (300, 100), (60, 10_000)]);
        assert_eq!(save("save 900 1"), [(900, 1)]);
        assert_eq!(save("save 900 1\nsave 300 10 60 7"), [(900, 1), (300, 10), (60, 7)]);
        assert_eq!(save("save 900 1\nsave \"\""), []);
        assert_eq!(save("save \"\"\nsave 5 5"), [(5, 5)]);
        assert!(load("save x").is_err() && load("save 1 2 3").is_err());
    }

    #[test]
    fn mistakes_name_the_line_and_the_remedy() {
        for (text, expected) in [
            (
                "\nhz abc",
                "/etc/dunlin.conf:2: 'hz abc': argument couldn't be parsed into an integer (hz: integer, 0 or more; default 10)",
            ),
            (
                "port 70000",
                "/etc/dunlin.conf:1: 'port 70000': argument must be between 0 and 65535 inclusive (port: integer, 0 to 65535; default 6379)",
            ),
            (
                "hz 1 2",
                "/etc/dunlin.conf:1: 'hz 1 2': wrong number of arguments (hz: integer, 0 or more; default 10)",
            ),
            (
                "hz",
                "/etc/dunlin.conf:1: 'hz': wrong number of arguments (hz: integer, 0 or more; default 10)",
            ),
            ("hz \"1", "/etc/dunlin.conf:1: 'hz \"1': unbalanced quotes in configuration line"),
            ("maxmemry 1", "/etc/dunlin.conf:1: 'maxmemry 1': unknown directive; did you mean maxmemory?"),
            (
                "foo\u{1b}[2J 1",
                "/etc/dunlin.conf:1: 'foo\\u{1b}[2J 1': unknown directive; `dunlin server --help` lists all of them",
            ),
            (
                "loadmodule /x.so",
                "/etc/dunlin.conf:1: 'loadmodule /x.so': not supported: modules cannot be loaded; remove the line",
            ),
            (
                "appenddirname a/b",
                "/etc/dunlin.conf:1: 'appenddirname a/b': appenddirname can't be a path, just a dirname",
            ),
            (
                "loglevel loud",
                "/etc/dunlin.conf:1: 'loglevel loud': argument(s) must be one of the following: debug, verbose, notice, warning, nothing",
            ),
            ("include", "/etc/dunlin.conf:1: 'include': include takes one path"),
            (
                "include /nonexistent/x.conf",
                "/etc/dunlin.conf:1: cannot read /nonexistent/x.conf: No such file or directory",
            ),
        ] {
            assert_eq!(load(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn mistakes_are_reported_all_at_once() {
        let error = load("hz 20\nfoo 1\nloadmodule /x.so\nport x\nhz 30").unwrap_err();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 3, "{error}");
        for (line, expected) in lines.iter().zip([":2: 'foo 1'", ":3: 'loadmodule /x.so'", ":4: 'port x'"]) {
            assert!(line.contains(expected), "{line}");
        }
        let noise = "noise of no sense\n".repeat(10_000);
        assert_eq!(load(&noise).unwrap_err().lines().count(), MISTAKES_MAX);
        let dir = ScratchDir::new("mistakes");
        dir.write("a.conf", "a 1\ninclude b.conf\ninclude none.conf\nc 1\n");
        dir.write("b.conf", "b 1\n");
        let error = load_file(&dir.path("a.conf"), &mut Config::default()).unwrap_err();
        assert_eq!(error.count(), 4, "{error}");
    }

    #[test]
    fn config_error_never_shows_a_password() {
        for text in ["requirepass hush hush", "requirepass \"hush", "REQUIREPASS 'hush'x"] {
            let error = load(text).unwrap_err();
            assert!(error.contains("requirepass (redacted)") && !error.contains("hush"), "{error}");
        }
        let config = load("requirepass hush").unwrap();
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn includes_follow_patterns_and_relative_paths() {
        let dir = ScratchDir::new("include");
        dir.write("main.conf", "port 1\ninclude conf.d/*.conf\ninclude none-*.conf\nhz 30\n");
        dir.write("conf.d/10.conf", "port 10\nhz 10\ninclude ../shared.conf\n");
        dir.write("conf.d/20.conf", "port 20\n");
        dir.write("conf.d/.hidden.conf", "port 30\n");
        dir.write("conf.d/20.conf.orig", "port 40\n");
        dir.write("shared.conf", "maxclients 77\n");
        let mut config = Config::default();
        load_file(&dir.path("main.conf"), &mut config).unwrap();
        assert_eq!((config.port, config.hz, config.maxclients), (20, 30, 77));
    }

    #[test]
    fn config_includes_in_a_circle_end() {
        let dir = ScratchDir::new("circle");
        dir.write("a.conf", "include b.conf\n");
        dir.write("b.conf", "include a.conf\n");
        let error = load_file(&dir.path("a.conf"), &mut Config::default()).unwrap_err().to_string();
        assert!(error.ends_with("more than 16 deep: break the circle"), "{error}");
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!(edit_distance(b"port", b"port"), 0);
        assert_eq!(edit_distance(b"prot", b"port"), 2);
        assert_eq!(edit_distance(b"", b"port"), 4);
    }

    proptest! {
        #[test]
        fn config_of_any_bytes_loads_or_is_refused(text: Vec<u8>) {
            let _ = load_text(&text, None, &mut Config::default());
        }

        #[test]
        fn config_value_of_any_directive_loads_or_is_refused(
            row in 0..super::super::DIRECTIVES.len(),
            values in proptest::collection::vec(any::<Vec<u8>>(), 0..5),
            text in "[ -~]{0,24}",
        ) {
            let directive = &super::super::DIRECTIVES[row];
            let _ = directive.assign(&values, &mut Config::default());
            let _ = directive.assign_argument(text.as_bytes(), &mut Config::default());
        }
    }
}
