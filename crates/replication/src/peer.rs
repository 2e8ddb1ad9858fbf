//! A primary's view of one replica.
//!
//! ```text
//! Handshake ─ PSYNC, partial ───────────────────────────────────────────▶ Online
//!     └────── PSYNC, full ──▶ Waiting ──▶ Sending ──▶ AwaitingAck ─ ACK ──▶ Online
//! ```

use std::fmt;

use crate::{request, wire::number};

/// A waiting replica gets a newline at this interval, so that it does not take the silence for a failure.
const NEWLINE_MS: u64 = 1000;
/// If ticks are further apart this server has stood still: what replicas have said meanwhile may not be read yet.
const STANDSTILL_MS: u64 = 2000;
/// Characters of an announced address at most, as in Redis.
const ADDRESS_BYTES_MAX: usize = 255;

/// The progress of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The replica has not asked for anything.
    Handshake,
    /// The replica waits for a snapshot to begin.
    Waiting,
    /// The replica is being sent a snapshot.
    Sending,
    /// The replica has all of its snapshot. Nothing may be sent to it before its acknowledgement, unless it reads
    /// frames.
    AwaitingAck,
    /// The replica follows the stream.
    Online,
}

impl Phase {
    /// Returns the name that INFO has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Handshake | Self::Waiting => "wait_bgsave",
            Self::Sending | Self::AwaitingAck => "send_bulk",
            Self::Online => "online",
        }
    }
}

/// The form of a snapshot that a replica understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SnapshotForm {
    /// Version 10, which every server reads, without expiry of hash fields.
    Redis10,
    /// Version 12 of Redis, with expiry of hash fields.
    Redis12,
    /// Version 80 of Valkey, with expiry of hash fields.
    Valkey80,
    /// A form that holds all of the data set: another Dunlin reads it.
    Own,
}

/// Why an option of REPLCONF is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionError {
    /// Names and values are not pairs.
    Syntax,
    /// There is no such option.
    Unknown(String),
    /// The value makes no sense: the line for the client.
    Value(&'static str),
}

impl fmt::Display for OptionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax => out.write_str("ERR syntax error"),
            Self::Unknown(name) => write!(out, "ERR Unrecognized REPLCONF option: {name}"),
            Self::Value(line) => out.write_str(line),
        }
    }
}

/// A replica, as its primary knows it.
#[derive(Debug, Clone)]
pub struct Peer {
    phase: Phase,
    /// The port that it serves clients on.
    pub listening_port: u16,
    /// The address that it wants to be known by.
    pub address: Option<String>,
    /// The version of Valkey that it is.
    version: Option<(u32, u32)>,
    eof: bool,
    psync2: bool,
    is_dunlin: bool,
    is_redis_8: bool,
    reads_frames: bool,
    /// Whether it is a node of a cluster: what its shard has not committed is for it, too.
    pub is_node: bool,
    /// Whether it wants a snapshot and nothing else.
    pub snapshot_only: bool,
    /// Whether it wants only the libraries of functions of a snapshot.
    pub functions_only: bool,
    /// Bytes of the stream that it has applied.
    pub acked: u64,
    /// Bytes of the stream that it has on disk.
    pub fsynced: u64,
    /// When it was heard of last.
    pub heard_ms: u64,
    newline_ms: u64,
    ticked_ms: u64,
    /// When this server had last stood still.
    woken_ms: u64,
    /// Whether it has asked by SYNC, which knows no offsets.
    pub is_old: bool,
}

/// The duty of the moment towards a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerTick {
    /// Nothing.
    Nothing,
    /// A sign of life.
    Newline,
    /// The replica has been silent for too long: the link is cut.
    Cut,
}

impl Peer {
    /// A client that may become a replica.
    pub fn new(now_ms: u64) -> Self {
        Self {
            phase: Phase::Handshake,
            listening_port: 0,
            address: None,
            version: None,
            eof: false,
            psync2: false,
            is_dunlin: false,
            is_redis_8: false,
            reads_frames: false,
            is_node: false,
            snapshot_only: false,
            functions_only: false,
            acked: 0,
            fsynced: 0,
            heard_ms: now_ms,
            newline_ms: now_ms,
            ticked_ms: now_ms,
            woken_ms: now_ms,
            is_old: false,
        }
    }

    /// Returns where it is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether it reads snapshots whose length is not known in front.
    pub fn reads_eof(&self) -> bool {
        self.eof
    }

    /// Whether it reads snapshots in frames, with the stream beside them.
    pub fn reads_frames(&self) -> bool {
        self.reads_frames && !self.is_old && !self.snapshot_only
    }

    /// Whether the stream may be sent to it: after its snapshot if that came in frames, and once it follows.
    pub fn takes_stream(&self) -> bool {
        self.phase == Phase::Online || self.phase == Phase::AwaitingAck && self.reads_frames()
    }

    /// Takes the words behind REPLCONF. `Ok(true)`: it is answered; acknowledgements are not.
    pub fn options(&mut self, words: &[&[u8]], now_ms: u64) -> Result<bool, OptionError> {
        if words.is_empty() || !words.len().is_multiple_of(2) {
            return Err(OptionError::Syntax);
        }
        self.heard_ms = now_ms;
        for pair in words.chunks_exact(2) {
            let (name, value) = (pair[0].to_ascii_lowercase(), pair[1]);
            match &*name {
                b"ack" => {
                    self.acknowledge(words, now_ms);
                    return Ok(false);
                }
                b"getack" => return Ok(false),
                b"listening-port" => {
                    let port = number(value).and_then(|port| u16::try_from(port).ok());
                    self.listening_port =
                        port.ok_or(OptionError::Value("ERR value is not an integer or out of range"))?;
                }
                b"ip-address" => {
                    if value.len() > ADDRESS_BYTES_MAX {
                        return Err(OptionError::Value(
                            "ERR REPLCONF ip-address provided by replica instance is too long",
                        ));
                    }
                    let text = String::from_utf8_lossy(value).into_owned();
                    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
                    self.address = Some(text).filter(|text| !text.is_empty() && is_plain);
                }
                b"capa" => match &*value.to_ascii_lowercase() {
                    b"eof" => self.eof = true,
                    b"psync2" => self.psync2 = true,
                    b"dunlin" => self.is_dunlin = true,
                    b"frames" => self.reads_frames = true,
                    b"node" => self.is_node = true,
                    b"rdb-channel-repl" => self.is_redis_8 = true,
                    _ => {}
                },
                b"version" => {
                    let mut parts = value.split(|byte| *byte == b'.').map(number);
                    let (Some(Some(major)), Some(Some(minor))) = (parts.next(), parts.next()) else {
                        return Err(OptionError::Value("ERR Invalid version format"));
                    };
                    let part = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
                    self.version = Some((part(major), part(minor)));
                }
                b"rdb-only" => self.snapshot_only = number(value).is_some_and(|value| value != 0),
                b"rdb-filter-only" => {
                    let mut wanted = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                    self.functions_only = match (wanted.next(), wanted.next()) {
                        (None, _) => false,
                        (Some(word), None) if word.eq_ignore_ascii_case(b"functions") => true,
                        _ => return Err(OptionError::Value("ERR Unsupported rdb-filter-only option")),
                    };
                }
                _ => return Err(OptionError::Unknown(String::from_utf8_lossy(pair[0]).into_owned())),
            }
        }
        Ok(true)
    }

    fn acknowledge(&mut self, words: &[&[u8]], now_ms: u64) {
        self.heard_ms = now_ms;
        let value = |name: &[u8]| {
            let pair = words.chunks_exact(2).find(|pair| pair[0].eq_ignore_ascii_case(name));
            pair.and_then(|pair| number(pair[1]))
        };
        if let Some(acked) = value(b"ack") {
            self.acked = self.acked.max(acked);
        }
        if let Some(fsynced) = value(b"fack") {
            self.fsynced = self.fsynced.max(fsynced);
        }
        if self.phase == Phase::AwaitingAck {
            self.phase = Phase::Online;
        }
    }

    /// Returns the form of a snapshot that it understands.
    pub fn form(&self) -> SnapshotForm {
        match self.version {
            _ if self.is_dunlin => SnapshotForm::Own,
            Some((9.., _)) => SnapshotForm::Valkey80,
            _ if self.is_redis_8 => SnapshotForm::Redis12,
            // Redis 7.0, 7.2 and 7.4 look alike here.
            _ => SnapshotForm::Redis10,
        }
    }

    /// A partial resynchronisation begins: the reply.
    pub fn continue_online(&mut self, id: &str, from: u64, now_ms: u64) -> Vec<u8> {
        (self.phase, self.heard_ms, self.acked) = (Phase::Online, now_ms, from);
        match self.psync2 {
            true => format!("+CONTINUE {id}\r\n").into_bytes(),
            false => b"+CONTINUE\r\n".to_vec(),
        }
    }

    /// The replica is to get a snapshot.
    pub fn wait(&mut self, now_ms: u64) {
        (self.phase, self.newline_ms) = (Phase::Waiting, now_ms);
    }

    /// The instant that its snapshot shows is decided: the reply to its PSYNC.
    pub fn begin_sending(&mut self, id: &str, offset: u64) -> Vec<u8> {
        debug_assert_eq!(self.phase, Phase::Waiting);
        self.phase = Phase::Sending;
        if self.is_old { Vec::new() } else { format!("+FULLRESYNC {id} {offset}\r\n").into_bytes() }
    }

    /// The replica has been sent all of its snapshot. A replica that takes the EOF form says when it has it; others
    /// have its length.
    pub fn end_sending(&mut self, now_ms: u64) {
        debug_assert_eq!(self.phase, Phase::Sending);
        let phase = if self.eof { Phase::AwaitingAck } else { Phase::Online };
        (self.phase, self.heard_ms) = (phase, now_ms);
    }

    /// The replica has sent something: replicas send empty lines while they load.
    pub fn hear(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
    }

    /// Whole seconds since its last acknowledgement.
    pub fn lag_s(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.heard_ms) / 1000
    }

    /// Looks at the time. To be called every second, or more often.
    pub fn tick(&mut self, now_ms: u64, timeout_ms: u64) -> PeerTick {
        if now_ms.saturating_sub(std::mem::replace(&mut self.ticked_ms, now_ms)) > STANDSTILL_MS {
            self.woken_ms = now_ms;
        }
        match self.phase {
            Phase::Waiting if now_ms.saturating_sub(self.newline_ms) >= NEWLINE_MS => {
                self.newline_ms = now_ms;
                PeerTick::Newline
            }
            Phase::Online | Phase::AwaitingAck
                if !self.is_old && now_ms.saturating_sub(self.heard_ms.max(self.woken_ms)) > timeout_ms =>
            {
                PeerTick::Cut
            }
            _ => PeerTick::Nothing,
        }
    }
}

/// Returns the acknowledgement that a replica sends.
pub(crate) fn acknowledgement(applied: u64, fsynced: Option<u64>) -> Vec<u8> {
    let (applied, fsynced) = (applied.to_string(), fsynced.map(|offset| offset.to_string()));
    let mut words: Vec<&[u8]> = vec![b"REPLCONF", b"ACK", applied.as_bytes()];
    if let Some(fsynced) = &fsynced {
        words.extend([&b"FACK"[..], fsynced.as_bytes()]);
    }
    request(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(options: &[&str]) -> Peer {
        let mut peer = Peer::new(0);
        for line in options {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(peer.options(&words, 0), Ok(true), "{line}");
        }
        peer
    }

    #[test]
    fn snapshot_has_the_form_that_the_replica_understands() {
        for (options, form) in [
            (&[][..], SnapshotForm::Redis10),
            (&["capa eof capa psync2"], SnapshotForm::Redis10),
            (&["capa eof capa psync2", "version 8.1.4"], SnapshotForm::Redis10),
            (&["capa eof capa psync2", "version 9.1.2"], SnapshotForm::Valkey80),
            (&["capa eof capa psync2 capa rdb-channel-repl"], SnapshotForm::Redis12),
            (&["capa eof capa psync2 capa dunlin", "version 9.1.2"], SnapshotForm::Own),
        ] {
            assert_eq!(with(options).form(), form, "{options:?}");
        }
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let mut peer = Peer::new(0);
        for (line, error) in [
            ("capa", "ERR syntax error"),
            ("capa eof capa", "ERR syntax error"),
            ("listening-port x", "ERR value is not an integer or out of range"),
            ("listening-port 65536", "ERR value is not an integer or out of range"),
            ("rdb-channel 1", "ERR Unrecognized REPLCONF option: rdb-channel"),
            ("version nine", "ERR Invalid version format"),
            ("rdb-filter-only keys", "ERR Unsupported rdb-filter-only option"),
        ] {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(peer.options(&words, 0).unwrap_err().to_string(), error, "{line}");
        }
    }

    #[test]
    fn replica_goes_online_with_its_first_acknowledgement() {
        let mut peer = with(&["capa eof capa psync2"]);
        peer.wait(0);
        assert_eq!(peer.tick(999, 5000), PeerTick::Nothing);
        assert_eq!(peer.tick(1000, 5000), PeerTick::Newline);
        assert_eq!(peer.begin_sending("id", 7), b"+FULLRESYNC id 7\r\n");
        assert_eq!(peer.tick(99_000, 5000), PeerTick::Nothing, "it may take its time");
        peer.end_sending(100_000);
        assert_eq!(peer.options(&[b"ACK", b"7", b"FACK", b"5"], 101_000), Ok(false));
        assert_eq!((peer.phase(), peer.acked, peer.fsynced), (Phase::Online, 7, 5));
        for now_ms in [101_000, 103_000, 105_000, 106_000] {
            assert_eq!(peer.tick(now_ms, 5000), PeerTick::Nothing);
        }
        assert_eq!(peer.tick(106_001, 5000), PeerTick::Cut);
    }

    #[test]
    fn primary_that_stood_still_does_not_take_that_for_silence() {
        let mut peer = with(&["capa eof capa psync2"]);
        peer.wait(0);
        peer.begin_sending("id", 7);
        peer.end_sending(0);
        assert_eq!(peer.options(&[b"ACK", b"7"], 0), Ok(false));
        assert_eq!(peer.tick(1000, 5000), PeerTick::Nothing);
        assert_eq!(peer.tick(60_000, 5000), PeerTick::Nothing, "its words may wait to be read");
        assert_eq!(peer.lag_s(60_000), 60);
        for now_ms in [62_000, 64_000, 65_000] {
            assert_eq!(peer.tick(now_ms, 5000), PeerTick::Nothing);
        }
        assert_eq!(peer.tick(65_001, 5000), PeerTick::Cut);
    }

    #[test]
    fn acknowledgements_are_read_as_they_are_written() {
        let mut peer = Peer::new(0);
        assert_eq!(acknowledgement(7, None), b"*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$1\r\n7\r\n");
        assert!(acknowledgement(7, Some(5)).ends_with(b"$4\r\nFACK\r\n$1\r\n5\r\n"));
        peer.options(&[b"ack", b"12", b"fack", b"9"], 0).unwrap();
        peer.options(&[b"ack", b"11", b"fack", b"junk"], 0).unwrap();
        assert_eq!((peer.acked, peer.fsynced), (12, 9), "they never go back");
    }
}
