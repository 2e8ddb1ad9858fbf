//! Both ends of a link, and a network between them that delays, cuts and goes silent, by seed.
//!
//! A primary records numbered commands, some in transactions. Its replica keeps the numbers that it has applied. After some
//! hundred rounds the network is left alone: the replica must come to the same numbers, at the same offset, and no full
//! resynchronisation may have happened that the backlog could have spared.

use dunlin_replication::{
    Action, Event, Framing, GETACK, History, Id, LinkState, PING, Peer, PeerTick, Phase, Replica,
    ReplicaOptions, Resync, SnapshotForm, SnapshotFrame, StreamReader, request,
};

const TIMEOUT_MS: u64 = 5_000;
const SEEDS: u64 = 400;
const ROUNDS: u64 = 400;

/// A generator of numbers that are the same for the same seed (xorshift*).
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next(100) < percent
    }
}

fn id(random: &mut Random) -> Id {
    Id::from_random(std::array::from_fn(|_| random.next(256) as u8))
}

/// The primary: its stream as a whole, and the part of it that it still has.
struct Primary {
    history: History,
    stream: Vec<u8>,
    backlog_bytes: usize,
    next_number: u64,
    peer: Peer,
    /// Bytes of the stream that its replica has been sent.
    sent: usize,
    input: Vec<u8>,
    /// The rest of a snapshot that it sends in frames.
    in_frames: Option<Vec<u8>>,
    /// Its last snapshot was in frames.
    was_in_frames: bool,
}

impl Primary {
    fn record(&mut self, random: &mut Random) {
        let mut number = || {
            self.next_number += 1;
            request(&[b"ADD", self.next_number.to_string().as_bytes()])
        };
        match random.next(10) {
            0 => {
                let block = [request(&[b"MULTI"]), number(), number(), request(&[b"EXEC"])].concat();
                self.stream.extend(block);
            }
            1 => self.stream.extend_from_slice(PING),
            2 => self.stream.extend_from_slice(GETACK),
            _ => self.stream.extend(number()),
        }
    }

    fn numbers(&self, until: usize) -> Vec<u64> {
        let mut applier = Applier::default();
        applier.take(&self.stream[..until]);
        assert_eq!(applier.offset, until as u64, "a snapshot shows whole commands");
        applier.numbers
    }

    /// Takes the bytes of a replica; returns the bytes for it.
    fn receive(&mut self, now_ms: u64, bytes: &[u8], random: &mut Random) -> Vec<u8> {
        self.input.extend_from_slice(bytes);
        let mut out = Vec::new();
        loop {
            if self.input.first() == Some(&b'\n') {
                self.peer.hear(now_ms);
                self.input.remove(0);
                continue;
            }
            let Some(frame) = StreamReader::default().next(&self.input).expect("a request") else { break };
            let rest = self.input.split_off(frame.end);
            let input = std::mem::replace(&mut self.input, rest);
            let words: Vec<&[u8]> = frame.words.iter().map(|word| &input[word.clone()]).collect();
            match words[0] {
                b"PING" => out.extend_from_slice(b"+PONG\r\n"),
                b"REPLCONF" => match self.peer.options(&words[1..], now_ms) {
                    Ok(true) => out.extend_from_slice(b"+OK\r\n"),
                    Ok(false) => {}
                    Err(error) => out.extend_from_slice(format!("-{error}\r\n").as_bytes()),
                },
                b"PSYNC" if random.chance(5) => out.extend_from_slice(b"-LOADING\r\n"),
                b"PSYNC" => {
                    let asked = std::str::from_utf8(words[2]).unwrap().parse().unwrap();
                    let end = self.stream.len() as u64;
                    let first = self.stream.len().saturating_sub(self.backlog_bytes) as u64;
                    match self.history.decide(words[1], asked, Some((first, end))) {
                        Resync::Partial { from } => {
                            let id = self.history.id;
                            out.extend(self.peer.continue_online(id.as_str(), from, now_ms));
                            self.sent = from as usize;
                        }
                        Resync::Full => self.peer.wait(now_ms),
                    }
                }
                other => panic!("{}", other.escape_ascii()),
            }
        }
        out
    }

    /// Does the work that is due; returns the bytes to send.
    fn work(&mut self, now_ms: u64, random: &mut Random, fulls: &mut u64) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        match self.peer.tick(now_ms, TIMEOUT_MS) {
            PeerTick::Cut => return (out, true),
            PeerTick::Newline => out.push(b'\n'),
            PeerTick::Nothing => {}
        }
        if self.peer.phase() == Phase::Waiting && random.chance(40) {
            *fulls += 1;
            assert_eq!(self.peer.form(), SnapshotForm::Own);
            let offset = self.stream.len();
            out.extend(self.peer.begin_sending(self.history.id.as_str(), offset as u64));
            self.sent = offset;
            let body: Vec<u8> = self.numbers(offset).iter().flat_map(|number| number.to_le_bytes()).collect();
            self.was_in_frames = random.chance(50);
            if self.was_in_frames {
                assert!(self.peer.reads_frames());
                out.extend(Framing::Frames.head());
                self.in_frames = Some(body);
                return (out, false);
            }
            let mark: [u8; 40] = std::array::from_fn(|_| b'a' + random.next(26) as u8);
            let eof = random.chance(50);
            let framing = if eof { Framing::Mark(mark) } else { Framing::Size(body.len() as u64) };
            (0..random.next(3)).for_each(|_| out.push(b'\n'));
            out.extend(framing.head());
            out.extend(body);
            if eof {
                out.extend(mark);
            }
            self.peer.end_sending(now_ms);
        }
        if let Some(body) = &mut self.in_frames {
            let bytes: Vec<u8> = body.drain(..body.len().min(random.next(60) as usize)).collect();
            let is_all = body.is_empty() && random.chance(50);
            let end = self.sent + random.next((self.stream.len() - self.sent) as u64 + 1) as usize;
            for (kind, bytes) in
                [(SnapshotFrame::Snapshot, &bytes[..]), (SnapshotFrame::Stream, &self.stream[self.sent..end])]
            {
                out.extend(kind.head(bytes.len() as u32));
                out.extend(bytes);
            }
            self.sent = end;
            if is_all {
                out.extend(SnapshotFrame::End.head(0));
                self.in_frames = None;
                self.peer.end_sending(now_ms);
            }
            return (out, false);
        }
        let takes = self.peer.phase() == Phase::Online || self.was_in_frames && self.peer.takes_stream();
        if takes && self.sent < self.stream.len() {
            let end = self.sent + 1 + random.next((self.stream.len() - self.sent) as u64) as usize;
            out.extend_from_slice(&self.stream[self.sent..end]);
            self.sent = end;
        }
        (out, false)
    }
}

/// The data set of a replica, and the stream that it has not applied.
#[derive(Default)]
struct Applier {
    numbers: Vec<u64>,
    block: Option<Vec<u64>>,
    input: Vec<u8>,
    read: u64,
    offset: u64,
    wants_ack: bool,
}

impl Applier {
    fn take(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(frame) = StreamReader::default().next(&self.input[at..]).expect("a stream") {
            let input = &self.input[at..];
            let words: Vec<&[u8]> = frame.words.iter().map(|word| &input[word.clone()]).collect();
            match words[0] {
                b"MULTI" => self.block = Some(Vec::new()),
                b"EXEC" => self.numbers.extend(self.block.take().expect("a block")),
                b"ADD" => {
                    let number = std::str::from_utf8(words[1]).unwrap().parse().unwrap();
                    self.block.as_mut().unwrap_or(&mut self.numbers).push(number);
                }
                b"REPLCONF" => self.wants_ack = true,
                _ => {}
            }
            at += frame.end;
            self.read += frame.end as u64;
            if self.block.is_none() {
                self.offset = self.read;
            }
        }
        self.input.drain(..at);
    }

    /// Bytes that came and were not applied are lost with the connection.
    fn cut(&mut self) {
        (self.block, self.read) = (None, self.offset);
        self.input.clear();
    }
}

/// A direction of a connection: the bytes on their way, by the time of their arrival.
#[derive(Default)]
struct Pipe(Vec<(u64, Vec<u8>)>);

impl Pipe {
    fn send(&mut self, now_ms: u64, bytes: Vec<u8>, random: &mut Random) {
        if !bytes.is_empty() {
            let earliest = self.0.last().map_or(now_ms, |(at, _)| now_ms.max(*at));
            self.0.push((earliest + random.next(300), bytes));
        }
    }

    fn arrived(&mut self, now_ms: u64) -> Vec<u8> {
        let count = self.0.iter().take_while(|(at, _)| *at <= now_ms).count();
        self.0.drain(..count).flat_map(|(_, bytes)| bytes).collect()
    }
}

fn run(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut now_ms = 1_000;
    let first = id(&mut random);
    let mut primary = Primary {
        history: History::new(first),
        stream: Vec::new(),
        backlog_bytes: [200, 2_000, 1 << 20][random.next(3) as usize],
        next_number: 0,
        peer: Peer::new(now_ms),
        sent: 0,
        input: Vec::new(),
        in_frames: None,
        was_in_frames: false,
    };
    let options = ReplicaOptions { timeout_ms: TIMEOUT_MS, port: 7000, ..ReplicaOptions::default() };
    let mut replica = Replica::new(options, None, now_ms);
    let mut applier = Applier::default();
    let (mut up, mut down) = (Pipe::default(), Pipe::default());
    let mut is_open = false;
    let (mut fulls, mut spared, mut silent_until) = (0, 0, 0);
    let mut arriving: Vec<u8> = Vec::new();
    let (mut snapshot, mut loading): (Vec<u8>, Option<u64>) = (Vec::new(), None);
    let mut waits_for_stream: Vec<u8> = Vec::new();
    let mut pending: Option<(Id, u64)> = None;
    let mut seen_positions = 0;
    for round in 0.. {
        let is_calm = round >= ROUNDS;
        if is_calm {
            let is_level = replica.link() == LinkState::Connected
                && replica.position() == Some((primary.history.id, primary.stream.len() as u64));
            if is_level && primary.peer.acked == primary.stream.len() as u64 {
                break;
            }
            assert!(round < ROUNDS + 2_000, "seed {seed}: it does not come to rest: {:?}", replica.link());
        }
        now_ms += 50 + random.next(200);
        if !is_calm && random.chance(30) {
            (0..random.next(8)).for_each(|_| primary.record(&mut random));
        }
        // A failover, as the replica sees it: the same bytes under another id.
        if !is_calm && random.chance(1) && !is_open {
            let end = primary.stream.len() as u64;
            primary.history.promote(id(&mut random), end);
        }
        let mut cut = !is_calm && is_open && random.chance(4);
        if !is_calm && random.chance(1) {
            silent_until = now_ms + random.next(3 * TIMEOUT_MS);
        }
        let mut events: Vec<Action> = Vec::new();
        replica.step(now_ms, Event::Tick, &mut events);
        if is_open && (is_calm || now_ms >= silent_until) {
            let request = up.arrived(now_ms);
            let before = primary.peer.phase();
            let asked = replica.position();
            let out = primary.receive(now_ms, &request, &mut random);
            if before == Phase::Handshake && primary.peer.phase() == Phase::Waiting {
                // The snapshot has to be one that the backlog does not spare.
                let first = primary.stream.len().saturating_sub(primary.backlog_bytes) as u64;
                let could = asked.is_some_and(|(id, offset)| {
                    let second = primary.history.second.filter(|second| second.0 == id);
                    let is_known = id == primary.history.id || second.is_some_and(|second| offset < second.1);
                    is_known && offset >= first
                });
                assert!(!could, "seed {seed}: a full resynchronisation that was not needed");
            } else if before == Phase::Handshake && primary.peer.phase() == Phase::Online {
                spared += 1;
            }
            down.send(now_ms, out, &mut random);
            let (out, drop) = primary.work(now_ms, &mut random, &mut fulls);
            down.send(now_ms, out, &mut random);
            cut |= drop;
            arriving.extend(down.arrived(now_ms));
        }
        if !arriving.is_empty() && !cut {
            let most = if is_calm { arriving.len() } else { 1 + random.next(arriving.len() as u64) as usize };
            let bytes: Vec<u8> = arriving.drain(..most).collect();
            let mut actions = Vec::new();
            let mut taken = 0;
            if replica.link() != LinkState::Connected || waits_for_stream.is_empty() {
                taken = replica.step(now_ms, Event::Received(&bytes), &mut actions);
            }
            for action in &actions {
                match action {
                    Action::BeginSnapshot { .. } => snapshot.clear(),
                    Action::Snapshot { held, range } => {
                        snapshot.extend_from_slice(held);
                        snapshot.extend_from_slice(&bytes[range.clone()]);
                    }
                    Action::Stream(range) => waits_for_stream.extend_from_slice(&bytes[range.clone()]),
                    _ => {}
                }
            }
            waits_for_stream.extend_from_slice(&bytes[taken..]);
            events.extend(actions);
        }
        for action in std::mem::take(&mut events) {
            match action {
                Action::Connect if random.chance(if is_calm { 0 } else { 20 }) => {
                    replica.step(now_ms, Event::Closed("refused"), &mut events);
                }
                Action::Connect => {
                    is_open = true;
                    (up, down) = (Pipe::default(), Pipe::default());
                    primary.peer = Peer::new(now_ms);
                    primary.input.clear();
                    primary.in_frames = None;
                    let mut actions = Vec::new();
                    replica.step(now_ms, Event::Connected, &mut actions);
                    for action in actions {
                        let Action::Send(bytes) = action else { panic!("{action:?}") };
                        up.send(now_ms, bytes, &mut random);
                    }
                }
                Action::Send(bytes) => up.send(now_ms, bytes, &mut random),
                Action::Close(_) => cut = true,
                Action::BeginSnapshot { id, offset, .. } => {
                    assert_eq!(replica.position(), None);
                    pending = Some((id, offset));
                }
                Action::EndSnapshot => loading = Some(now_ms + random.next(3_000)),
                Action::Continue(id) => assert_eq!(id, primary.history.id),
                Action::Snapshot { .. } | Action::Stream(_) => {}
                Action::Warn(line) => panic!("seed {seed}: {line}"),
                Action::HandedOver(_) => panic!("seed {seed}: nobody hands over"),
            }
        }
        if cut {
            is_open = false;
            replica.step(now_ms, Event::Closed("cut"), &mut events);
            applier.cut();
            (arriving, waits_for_stream, loading) = (Vec::new(), Vec::new(), None);
            continue;
        }
        if loading.is_some_and(|at| now_ms >= at) {
            loading = None;
            let (_, offset) = pending.expect("a snapshot was announced");
            let numbers = snapshot.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
            applier = Applier { numbers: numbers.collect(), offset, read: offset, ..Applier::default() };
            assert_eq!(applier.numbers, primary.numbers(offset as usize), "seed {seed}");
            replica.step(now_ms, Event::Loaded, &mut events);
        }
        if replica.link() == LinkState::Connected {
            applier.take(&std::mem::take(&mut waits_for_stream));
            replica.step(now_ms, Event::Applied(applier.offset), &mut events);
            if std::mem::take(&mut applier.wants_ack) {
                replica.step(now_ms, Event::AckWanted, &mut events);
            }
            assert_eq!(applier.numbers, primary.numbers(applier.offset as usize), "seed {seed}");
            seen_positions += 1;
        }
        for action in events {
            let Action::Send(bytes) = action else { panic!("{action:?}") };
            up.send(now_ms, bytes, &mut random);
        }
    }
    assert_eq!(applier.numbers, primary.numbers(primary.stream.len()), "seed {seed}");
    assert!(seen_positions > 0 && fulls + spared > 0);
}

#[test]
fn replica_comes_to_the_primarys_state_whatever_the_network_does() {
    (1..=SEEDS).for_each(run);
}
