//! Questions to a server.

use dunlin_bench::{
    server_flags::ServerFlags,
    target::{Address, Client, TargetError},
};
use dunlin_resp::Value;

/// A connection to the server that the flags name.
pub(crate) fn connect(flags: &ServerFlags) -> Result<Client, String> {
    let target = flags.target()?;
    target.client().map_err(|error| format!("{}: {error}", target.address))
}

/// A connection to another server, whose address is `HOST:PORT`, with everything else that the flags say.
pub(crate) fn connect_to(flags: &ServerFlags, address: &str) -> Result<Client, String> {
    let (host, port) = address.rsplit_once(':').ok_or_else(|| format!("'{address}' is no HOST:PORT"))?;
    let port = port.parse().map_err(|_| format!("'{address}' is no HOST:PORT"))?;
    let mut target = flags.target()?;
    target.address = Address::Tcp(host.trim_matches(['[', ']']).to_owned(), port);
    target.client().map_err(|error| format!("{}: {error}", target.address))
}

/// Runs a command. The outer error is the connection's, the inner one the server's.
pub(crate) fn put(client: &mut Client, words: &[&str]) -> Result<Result<Value, String>, TargetError> {
    Ok(match client.call(words)? {
        Value::Error(line) => Err(text(&line)),
        value => Ok(value),
    })
}

/// Runs a command; either error is a line for the operator.
pub(crate) fn ask(client: &mut Client, words: &[&str]) -> Result<Value, String> {
    put(client, words).map_err(|error| error.to_string())?
}

/// The text of an answer, or nothing.
pub(crate) fn ask_text(client: &mut Client, words: &[&str]) -> Result<String, String> {
    Ok(ask(client, words)?.as_bytes().map(text).unwrap_or_default())
}

/// The strings of an array.
pub(crate) fn strings(value: &Value) -> Vec<String> {
    let items: &[Value] = match value {
        Value::Array(items) | Value::Set(items) => items,
        _ => &[],
    };
    items.iter().map(|item| item.as_bytes().map(text).unwrap_or_default()).collect()
}

/// Bytes of a server for a terminal: nothing in them controls it.
pub(crate) fn text(bytes: &[u8]) -> String {
    let is_harmless = |char: &char| !char.is_control() || matches!(char, '\n' | '\t');
    String::from_utf8_lossy(bytes).chars().filter(is_harmless).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_do_not_control_the_terminal() {
        assert_eq!(text(b"a\x1b[2Jb\r\n\xff"), "a[2Jb\n\u{fffd}");
        let value = Value::Array(vec![Value::Bulk(b"a".to_vec()), Value::Integer(1)]);
        assert_eq!(strings(&value), ["a", ""]);
    }
}
