//! `dunlin server [CONFIG-FILE] [-] [--directive value ...] [-]`.
//!
//! Every directive is a flag that takes the words up to the next flag, as in redis-server, so
//! `--bind 127.0.0.1 -::1 --save "" --slowlog-log-slower-than -1` needs no quoting. `--name=value` works
//! too, and is how a value begins with `--`. clap cannot express "any words up to the next flag" when
//! words may begin with `-`. So clap renders the help from the table, and the reading is here.
//!
//! Hands that are used to redis-cli type `-p 7000` or `port 7000`: `-p` is understood, and everything else of the kind is
//! refused with the right form of it.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::{Arg, Command, builder::PossibleValuesParser};

use super::directive::{Directive, Group};
use super::documents;
use super::lines::Origin;
use super::settings::Config;
use super::source::{LoadError, load_file, load_text, load_words};
use super::table::{DIRECTIVES, find};
use super::words;
use dunlin_scripting::REDIS_VERSION;

/// The request of a command line.
#[derive(Debug)]
pub enum Request {
    /// Run a server.
    Run(Box<Launch>),
    /// Print this text and exit.
    Print(String),
}

/// A configuration to start with.
#[derive(Debug)]
pub struct Launch {
    /// The values of file, standard input and flags, in this order.
    pub config: Config,
    /// The configuration file, absolute.
    pub file: Option<PathBuf>,
}

/// Reads the words after `dunlin server`, the files they name, and `input` if they say so.
pub fn parse(words: impl IntoIterator<Item = OsString>, input: &mut dyn Read) -> Result<Request, LoadError> {
    let mut words: Vec<Vec<u8>> = words.into_iter().map(OsString::into_vec).collect();
    for word in &words {
        match word.as_slice() {
            b"--help" | b"-h" => return Ok(Request::Print(help())),
            b"--version" | b"-v" | b"-V" => return Ok(Request::Print(version())),
            b"--print-config" => return Ok(Request::Print(documents::default_file())),
            _ => {}
        }
    }
    let mut has_input = words.pop_if(|word| word == b"-").is_some();
    let has_file = words.first().is_some_and(|word| !word.starts_with(b"-"));
    let file = has_file.then(|| PathBuf::from(OsString::from_vec(words.remove(0))));
    if words.first().is_some_and(|word| word == b"-") {
        words.remove(0);
        has_input = true;
    }
    if let Some(file) = &file
        && !file.exists()
        && let Some(directive) = find(file.as_os_str().as_bytes())
    {
        let meant = long_form(directive.name, words.first().map(Vec::as_slice));
        return Err(LoadError::Usage(format!(
            "there is no configuration file '{}'; did you mean {meant}?",
            file.display()
        )));
    }

    let mut config = Config::default();
    let mut mistakes = Vec::new();
    let mut note = |loaded: Result<(), LoadError>| mistakes.extend(loaded.err());
    if let Some(file) = &file {
        note(load_file(file, &mut config));
    }
    if has_input {
        let mut text = Vec::new();
        let unreadable = |error| LoadError::Unreadable { path: "standard input".into(), from: None, error };
        input.read_to_end(&mut text).map_err(unreadable)?;
        note(load_text(&text, None, &mut config));
    }
    for flag in words.chunk_by(|_, next| !next.starts_with(b"--") && next != b"-p") {
        note(flag_words(flag).and_then(|line| load_words(&Origin::Flag, &line, &mut config)));
    }
    LoadError::all(mistakes)?;
    let file = file.map(|file| absolute(&file)).transpose()?;
    Ok(Request::Run(Box::new(Launch { config, file })))
}

/// The absolute path of a file, since `dir` is entered later.
fn absolute(file: &std::path::Path) -> Result<PathBuf, LoadError> {
    std::path::absolute(file).map_err(|error| LoadError::Unreadable {
        path: file.to_owned(),
        from: None,
        error,
    })
}

/// The line of a file that a flag and the words up to the next one stand for.
fn flag_words(flag: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, LoadError> {
    let (first, values) = flag.split_first().expect("chunk_by gives no empty chunk");
    let name = match first.strip_prefix(b"--") {
        Some(name) => name,
        None if first == b"-p" => b"port",
        None => return Err(misplaced(flag)),
    };
    let is_flag = |word: &Vec<u8>| word.strip_prefix(b"-").is_some_and(|name| find(name).is_some());
    if let Some(at) = values.iter().position(is_flag) {
        return Err(misplaced(&values[at..]));
    }
    let mut line = match name.iter().position(|byte| *byte == b'=' || byte.is_ascii_whitespace()) {
        Some(at) if name[at] == b'=' => vec![name[..at].to_vec(), name[at + 1..].to_vec()],
        // Process managers write a whole line of the file as one word.
        Some(at) => words::split(name).map_err(|_| {
            let name = String::from_utf8_lossy(&name[..at]);
            LoadError::Usage(format!("--{}: unbalanced quotes in configuration line", name.escape_debug()))
        })?,
        None => vec![name.to_vec()],
    };
    line.extend_from_slice(values);
    Ok(line)
}

/// The flags of redis-cli that a server is often started with, and the directives that they stand for.
const CLIENT_FLAGS: &[(&[u8], &str)] = &[(b"-s", "unixsocket"), (b"-a", "requirepass"), (b"-n", "databases")];

/// The error for words of which the first is neither a file nor a flag.
fn misplaced(words: &[Vec<u8>]) -> LoadError {
    let (word, value) = (words[0].as_slice(), words.get(1).map(Vec::as_slice));
    let shown: String = String::from_utf8_lossy(word).escape_debug().collect();
    let client_flag = CLIENT_FLAGS.iter().find(|(flag, _)| *flag == word).map(|(_, name)| *name);
    let stripped = word.strip_prefix(b"-").unwrap_or(word);
    let directive = client_flag.or_else(|| find(stripped).map(|directive| directive.name));
    LoadError::Usage(match directive {
        Some(name) => format!("unexpected '{shown}': did you mean {}?", long_form(name, value)),
        None => format!(
            "unexpected '{shown}': dunlin server takes one configuration file, then --directive value ..."
        ),
    })
}

/// A directive as a flag, with the value that stood behind its wrong form.
fn long_form(name: &str, value: Option<&[u8]>) -> String {
    let is_secret = find(name.as_bytes()).is_some_and(Directive::is_secret);
    match value.filter(|value| !is_secret && !value.starts_with(b"-")) {
        Some(value) => format!("--{name} {}", String::from_utf8_lossy(value).escape_debug()),
        None => format!("--{name}"),
    }
}

/// The line of `--version`.
fn version() -> String {
    format!("dunlin {} (commands of Redis {REDIS_VERSION})\n", env!("CARGO_PKG_VERSION"))
}

/// The subcommand as clap describes it, every directive included: for help, and for completions.
pub fn command() -> Command {
    let mut command = Command::new("server")
        .about("Run a server")
        .override_usage("dunlin server [CONFIG-FILE] [-] [--directive value ...]")
        .arg(
            Arg::new("config-file")
                .value_name("CONFIG-FILE")
                .help("Configuration file, in the syntax of redis.conf; `-` reads it from standard input"),
        )
        .arg(
            Arg::new("print-config")
                .long("print-config")
                .num_args(0)
                .help("Print a configuration file with every default, and exit"),
        )
        .arg(Arg::new("version").short('v').long("version").num_args(0).help("Print the version, and exit"))
        .after_help(
            "Examples:\n  \
             dunlin server\n  \
             dunlin server --port 7000 --bind 127.0.0.1 ::1 --maxmemory 2gb\n  \
             dunlin server /etc/dunlin.conf --loglevel verbose\n  \
             echo 'maxmemory 128mb' | dunlin server -\n\n\
             Flags are applied after the file. -p is --port. Sizes take kb, mb and gb.",
        );
    for group in Group::ALL {
        for directive in DIRECTIVES.iter().filter(|directive| directive.group == group) {
            let words = if directive.takes_several_words() { 1..=usize::MAX } else { 1..=1 };
            let mut flag = Arg::new(directive.name)
                .long(directive.name)
                .aliases(directive.aliases)
                .help_heading(group.title())
                .value_name(directive.value_name())
                .num_args(words)
                .default_value(directive.default)
                .help(format!("{} [{}]", directive.doc, directive.values()));
            if let Some(choices) = directive.choices() {
                // For completions; the help has them already.
                flag = flag.value_parser(PossibleValuesParser::new(choices)).hide_possible_values(true);
            }
            command = command.arg(flag);
        }
    }
    command
}

fn help() -> String {
    command().bin_name("dunlin server").term_width(100).render_help().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;

    fn parse_words(words: &[&str], input: &str) -> Result<Launch, String> {
        match parse(words.iter().map(OsString::from), &mut input.as_bytes()) {
            Ok(Request::Run(launch)) => Ok(*launch),
            Ok(Request::Print(text)) => panic!("{text}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn flag_may_have_all_its_words_in_one_argument() {
        let config = parse_words(&["--client-output-buffer-limit", "normal 16mb 8mb 5"], "").unwrap().config;
        let normal = config.client_output_buffer_limit.normal;
        assert_eq!((normal.hard_bytes, normal.soft_bytes, normal.soft_seconds), (16 << 20, 8 << 20, 5));
    }

    #[test]
    fn flag_and_its_values_may_be_one_argument() {
        let words = ["--save 60 1", "--maxmemory 100mb", "--requirepass=a b", "--bind '127.0.0.1' ::1"];
        let config = parse_words(&words, "").unwrap().config;
        assert_eq!(config.maxmemory, 100 << 20);
        assert_eq!((config.save.len(), config.save[0].seconds, config.save[0].changes), (1, 60, 1));
        assert_eq!(config.requirepass.bytes(), b"a b");
        assert_eq!(config.bind, ["127.0.0.1", "::1"]);
        let config = parse_words(&["--save 60 1", "300", "10"], "").unwrap().config;
        assert_eq!(config.save.len(), 2);
        assert_eq!(
            parse_words(&["--requirepass \"x"], "").unwrap_err(),
            "--requirepass: unbalanced quotes in configuration line"
        );
    }

    #[test]
    fn flags_take_the_words_up_to_the_next_flag() {
        let words = [
            "--save",
            "",
            "--bind",
            "127.0.0.1",
            "-::1",
            "--port",
            "7000",
            "--slowlog-log-slower-than",
            "-1",
            "--requirepass=--x",
            "--HZ",
            "20",
            "--hz",
            "30",
            "--client-output-buffer-limit",
            "normal",
            "1",
            "2",
            "3",
            "slave",
            "4",
            "5",
            "6",
        ];
        let launch = parse_words(&words, "").unwrap();
        assert_eq!(launch.file, None);
        let config = launch.config;
        assert_eq!(config.bind, ["127.0.0.1", "-::1"]);
        assert_eq!((config.port, config.hz, config.slowlog_log_slower_than), (7000, 30, -1));
        assert_eq!(config.requirepass.bytes(), b"--x");
        assert_eq!(config.client_output_buffer_limit.replica.soft_bytes, 5);
    }

    #[test]
    fn save_without_words_is_none() {
        for words in [&["--save"][..], &["--save", "--port", "7000"], &["--save", "60", "1", "--save"]] {
            assert_eq!(parse_words(words, "").unwrap().config.save, [], "{words:?}");
        }
        assert_eq!(parse_words(&["-"], "save\n").unwrap().config.save, []);
    }

    #[test]
    fn file_then_input_then_flags() {
        let dir = ScratchDir::new("order");
        dir.write("a.conf", "port 1\nhz 11\ntimeout 1\n");
        let file = dir.path("a.conf");
        let launch = parse_words(&[file.to_str().unwrap(), "--port", "3", "-"], "port 2\nhz 12\n").unwrap();
        assert_eq!((launch.config.port, launch.config.hz, launch.config.timeout), (3, 12, 1));
        assert_eq!(launch.file, Some(file));
        assert_eq!(parse_words(&["-"], "port 5").unwrap().config.port, 5);
        let words = ["-", "--hz", "13"];
        let config = parse_words(&words, "port 5\nhz 12").unwrap().config;
        assert_eq!((config.port, config.hz), (5, 13));
        assert_eq!(parse_words(&[], "port 5").unwrap().config, Config::default());
    }

    #[test]
    fn habits_of_redis_cli_are_understood_or_corrected() {
        for words in [&["-p", "7000"][..], &["--hz", "20", "-p", "7000"], &["-p", "7000", "--hz", "20"]] {
            assert_eq!(parse_words(words, "").unwrap().config.port, 7000, "{words:?}");
        }
        for (words, expected) in [
            (&["port", "7000"][..], "there is no configuration file 'port'; did you mean --port 7000?"),
            (&["--hz=20", "-port", "7000"], "unexpected '-port': did you mean --port 7000?"),
            (&["-port", "7000"], "unexpected '-port': did you mean --port 7000?"),
            (&["-s", "/tmp/s"], "unexpected '-s': did you mean --unixsocket /tmp/s?"),
            (&["-a", "hush"], "unexpected '-a': did you mean --requirepass?"),
            (&["-p"], "--port: wrong number of arguments (port: integer, 0 to 65535; default 6379)"),
            (
                &["-x"],
                "unexpected '-x': dunlin server takes one configuration file, then --directive value ...",
            ),
        ] {
            assert_eq!(parse_words(words, "").unwrap_err(), expected);
        }
        let dir = ScratchDir::new("port");
        dir.write("port", "hz 77\n");
        let file = dir.path("port");
        assert_eq!(parse_words(&[file.to_str().unwrap()], "").unwrap().config.hz, 77);
    }

    #[test]
    fn version_flags_print_the_version() {
        for flag in ["--version", "-v", "-V"] {
            let Ok(Request::Print(line)) = parse([flag.into()], &mut std::io::empty()) else { panic!() };
            assert!(
                line.starts_with("dunlin 0.") && line.ends_with(&format!("{REDIS_VERSION})\n")),
                "{line}"
            );
        }
    }

    #[test]
    fn mistakes_are_one_line() {
        for (words, expected) in [
            (
                &["--port", "x"][..],
                "--port x: argument couldn't be parsed into an integer (port: integer, 0 to 65535; default 6379)",
            ),
            (&["--port"], "--port: wrong number of arguments (port: integer, 0 to 65535; default 6379)"),
            (
                &["--maxmemory", "2gigs"],
                "--maxmemory 2gigs: argument must be a memory value (maxmemory: bytes; units: kb, mb, gb (powers of 1024), \
                 k, m, g (powers of 1000), none for bytes; default 0)",
            ),
            (&["--prot", "1"], "--prot 1: unknown directive; did you mean port?"),
            (
                &["--replicaof", "a", "0"],
                "--replicaof a 0: Invalid master port (replicaof: host and port; default \"\")",
            ),
            (
                &["--prot", "1", "--hz", "x"],
                "--prot 1: unknown directive; did you mean port?\n\
                 --hz x: argument couldn't be parsed into an integer (hz: integer, 0 or more; default 10)",
            ),
            (
                &["--requirepass", "a", "b"],
                "--requirepass (redacted): wrong number of arguments (requirepass: text; default \"\")",
            ),
            (&["/nonexistent.conf"], "cannot read /nonexistent.conf: No such file or directory"),
            (
                &["-"],
                "standard input:1: 'hz': wrong number of arguments (hz: integer, 0 or more; default 10)",
            ),
        ] {
            assert_eq!(parse_words(words, "hz").unwrap_err(), expected);
        }
        let dir = ScratchDir::new("two");
        dir.write("a.conf", "");
        let error = parse_words(&[dir.path("a.conf").to_str().unwrap(), "b.conf"], "").unwrap_err();
        assert_eq!(
            error,
            "unexpected 'b.conf': dunlin server takes one configuration file, then --directive value ..."
        );
    }

    #[test]
    fn help_has_every_directive_under_its_group() {
        command().debug_assert();
        let Ok(Request::Print(help)) = parse(["--help".into()], &mut std::io::empty()) else { panic!() };
        for directive in DIRECTIVES.iter() {
            assert!(help.contains(&format!("--{} ", directive.name)), "{}", directive.name);
        }
        for group in Group::ALL {
            assert!(help.contains(&format!("\n{}:\n", group.title())), "{help}");
        }
    }
}
