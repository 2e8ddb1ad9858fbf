//! The console: a page whose files are in the binary, and the connection that it makes.
//!
//! ```text
//! browser ◀── WebSocket, binary messages ──▶ thread `http` ◀── pair of sockets ──▶ a worker
//!             the bytes of RESP3              copies                              a client like others
//! ```
//!
//! The page speaks the server's own protocol, so there is no second interface with rules of its own. The page
//! authenticates by AUTH or HELLO, each action is a command, and the worker admits, limits and lists it as a client at
//! the browser's address (docs/decisions/0044). Nothing is kept in the browser that would authenticate by itself, and
//! only the console's own page may connect, so that other sites cannot use a server that asks for no password.
//!
//! `console/` has the sources of the files under `http/console/`; `make console` builds them anew.

use std::{fmt::Write, io, pin::pin, sync::LazyLock, time::Duration};

use futures_util::{SinkExt, StreamExt, future::select};
use hyper::{
    HeaderMap, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{
        CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
        UPGRADE,
    },
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use super::{
    Ends,
    consoles::{ConsolePlace, Counted},
    guard::{self, Refused},
    relay,
    routes::{self, Body, Site},
};
use crate::config::{Change, Config, DIRECTIVES};

/// Bytes of a message from the browser; a request may span several.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a message to the browser.
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes that are read from a browser at once.
const READ_BYTES: usize = 16 * 1024;
/// Bytes that wait for a browser: a message and its head, and answers to pings, of which the latest replaces those that find
/// no room (RFC 6455, 5.5.3).
const WRITE_BYTES_MAX: usize = PIECE_BYTES + 4 * 1024;
/// Bytes of a control frame's head.
const CONTROL_HEAD_BYTES: usize = 6;
/// How long a browser may take to read the last messages.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// How long nothing may come from a browser. The page asks for something each second while it is looked at.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// The page loads its own files and makes its own connection, nothing else.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                                 base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page, and its type.
pub(super) fn file(path: &str) -> Option<(&'static str, &'static [u8])> {
    match path {
        "/" => Some(("text/html; charset=utf-8", include_bytes!("console/index.html"))),
        "/app.js" => Some(("text/javascript; charset=utf-8", include_bytes!("console/app.js"))),
        "/style.css" => Some(("text/css; charset=utf-8", include_bytes!("console/style.css"))),
        "/directives.json" => Some(("application/json", directives().as_bytes())),
        _ => None,
    }
}

/// The table of directives, which the page compares with `CONFIG GET`: of this version, without a value of this server.
fn directives() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let defaults = Config::default();
        let mut out = String::from("[");
        for (at, directive) in DIRECTIVES.iter().enumerate() {
            let comma = if at == 0 { "" } else { ",\n" };
            let change = match directive.change {
                Change::Anytime => "any time",
                Change::Protected => "protected",
                Change::AtStart => "at start",
            };
            let default = String::from_utf8_lossy(&directive.print(&defaults)).into_owned();
            let _ = write!(out, "{comma}{{");
            for (name, text) in [
                ("name", directive.name),
                ("group", directive.group.title()),
                ("default", &default),
                ("values", &directive.values()),
                ("doc", directive.doc),
                ("change", change),
            ] {
                let _ = write!(out, "\"{name}\":{},", json_text(text));
            }
            let _ = write!(out, "\"secret\":{}}}", directive.is_secret());
        }
        out + "]"
    });
    &TEXT
}

/// A JSON string (RFC 8259).
fn json_text(text: &str) -> String {
    let mut out = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out + "\""
}

/// `/connect`: begins a connection of the console.
pub(super) fn connect(
    mut request: Request<Incoming>,
    site: &Site,
    ends: Ends,
) -> Result<Response<Body>, Refused> {
    guard::check_origin(&request)?;
    let key = websocket_key(request.headers())?;
    let busy = |reason: &str| Refused::new(StatusCode::SERVICE_UNAVAILABLE, reason);
    let node = relay::target(request.uri().query(), &site.shared, ends)?;
    if node.is_some() && !site.consoles.knows(&site.shared, ends.peer.ip()) {
        return Err(Refused::new(
            StatusCode::FORBIDDEN,
            "log in to this node before another is reached through it",
        ));
    }
    let place = site.consoles.enter(&site.shared, ends, node.is_some());
    let place = place.ok_or_else(|| busy("there are too many consoles already"))?;
    let socket = match node {
        Some(address) => relay::open(address),
        None => site.new_client(ends),
    };
    let socket = socket.map_err(|error| busy(&format!("cannot make a connection: {error}")))?;
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        // A browser that has gone meanwhile has no connection.
        if let Ok(upgraded) = upgrade.await {
            copy(upgraded, socket, place).await;
        }
    });
    let mut response = routes::text(StatusCode::SWITCHING_PROTOCOLS, String::new());
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes())).expect("base64 is plain text");
    for (name, value) in [
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
        (SEC_WEBSOCKET_ACCEPT, accept),
    ] {
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// The key of a request that asks for a WebSocket as RFC 6455 has it.
fn websocket_key(headers: &HeaderMap) -> Result<String, Refused> {
    let has_word = |name: HeaderName, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(word))
    };
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).filter(|key| key.len() == 24);
    match key {
        Some(key)
            if has_word(CONNECTION, "upgrade")
                && has_word(UPGRADE, "websocket")
                && has_word(SEC_WEBSOCKET_VERSION, "13") =>
        {
            Ok(key.to_owned())
        }
        _ => Err(Refused::new(StatusCode::BAD_REQUEST, "a WebSocket of version 13 is expected here")),
    }
}

/// Copies between browser and worker until one of them ends, or another console takes the place. Each waits for the other to
/// take what it sends, and answers to pings have a limit: memory does not grow.
async fn copy(upgraded: Upgraded, socket: UnixStream, place: ConsolePlace) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(WRITE_BYTES_MAX);
    let account = &place.account;
    account.add(READ_BYTES + WRITE_BYTES_MAX + PIECE_BYTES);
    let (stream, arriving) = Counted::new(TokioIo::new(upgraded), account);
    let stream = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let (mut to_browser, mut from_browser) = stream.split();
    let (mut from_worker, mut to_worker) = socket.into_split();
    let inward = async {
        while let Ok(Some(Ok(message))) = timeout(SILENCE_MAX, from_browser.next()).await {
            let bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Text(text) => text.into(),
                Message::Close(_) => break,
                // The library answers pings. Control frames may come between the frames of a message.
                Message::Ping(bytes) | Message::Pong(bytes) => {
                    arriving.settle(account, CONTROL_HEAD_BYTES + bytes.len());
                    continue;
                }
                Message::Frame(_) => continue,
            };
            let written = to_worker.write_all(&bytes).await;
            arriving.settle(account, usize::MAX);
            if written.is_err() {
                break;
            }
        }
    };
    let outward = async {
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            match from_worker.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(read) => {
                    let piece = Message::Binary(Bytes::copy_from_slice(&buffer[..read]));
                    // Answers to pings leave first: a message needs all of the room.
                    if to_browser.flush().await.is_err() || to_browser.send(piece).await.is_err() {
                        return;
                    }
                }
            }
        }
        // The worker has closed the connection; a browser that has gone need not hear of it.
        let _ = timeout(FAREWELL_MAX, async {
            let _ = to_browser.flush().await;
            to_browser.close().await
        })
        .await;
    };
    select(select(pin!(inward), pin!(outward)), pin!(place.is_taken())).await;
}

/// Makes a pair of sockets: one end is for the runtime, the other for a worker.
pub(super) fn pair() -> io::Result<(UnixStream, socket2::Socket)> {
    let (own, other) = UnixStream::pair()?;
    Ok((own, other.into_std()?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn console_is_small_and_loads_nothing_from_elsewhere() {
        let files = ["/", "/app.js", "/style.css"].map(|path| file(path).unwrap().1);
        let bytes: usize = files.iter().map(|file| file.len()).sum();
        assert!(bytes <= 300 * 1024, "{bytes} bytes");
        for file in files {
            let text = String::from_utf8_lossy(file);
            let urls: Vec<&str> = text
                .split("http")
                .filter(|rest| rest.starts_with("://") || rest.starts_with("s://"))
                .collect();
            let is_name = |rest: &&&str| !rest.starts_with("://www.w3.org/");
            assert_eq!(
                urls.iter().filter(is_name).count(),
                0,
                "{:?}",
                urls.iter().map(|url| &url[..30]).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn directives_are_json() {
        let text = directives();
        assert!(text.starts_with("[{\"name\":\"acl-pubsub-default\",") && text.ends_with("}]"));
        assert_eq!(json_text("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }

    #[test]
    fn websocket_upgrade_is_checked_as_in_the_standard() {
        let good = || {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
            headers
        };
        assert!(websocket_key(&good()).is_ok());
        for name in [CONNECTION, UPGRADE, SEC_WEBSOCKET_VERSION, SEC_WEBSOCKET_KEY] {
            let mut headers = good();
            headers.insert(name, HeaderValue::from_static("x"));
            assert!(websocket_key(&headers).is_err());
        }
    }
}
