//! The open consoles: how many there may be, which of them gives way to the next, and the memory that they hold.
//!
//! ```text
//! at most CONSOLES_MAX ┌───────────────────────────────┬─────────────────┐
//!                      │ logged in                     │ strangers       │ at most STRANGERS_MAX
//!                      └───────────────────────────────┴─────────────────┘
//! ```
//!
//! A console is a stranger's until its client has logged in. Strangers hold half of the places at most, so the others are
//! kept for operators. The next stranger takes the place of one from the address that has the most, or of one that is as
//! old as strangers may be on the port for RESP while others wait. A console whose client has logged in never gives way.
//! A relay to another node has no client here. Only an address at which a client has logged in by a console may open one,
//! so a relay counts as logged in.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use dunlin_net::{CONSOLES_MAX, STRANGER_AGE_MAX, Transport};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::Instant,
};

use super::Ends;
use crate::shared::Shared;

/// Places that strangers may hold.
const STRANGERS_MAX: usize = CONSOLES_MAX as usize / 2;
/// Bytes of a message that a stranger may leave unfinished.
const STRANGER_BYTES_MAX: usize = 32 * 1024;

/// The open consoles.
#[derive(Debug, Default)]
pub(super) struct Consoles {
    open: Mutex<Vec<Open>>,
}

#[derive(Debug)]
struct Open {
    ends: Ends,
    is_relay: bool,
    since: Instant,
    /// Tells the console to end.
    end: Arc<Notify>,
}

impl Consoles {
    /// A place for one more console, for as long as it is kept; `None` while others have all of them.
    pub(super) fn enter(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        ends: Ends,
        is_relay: bool,
    ) -> Option<ConsolePlace> {
        let mut open = self.lock();
        if open.len() >= STRANGERS_MAX {
            let strangers = strangers(shared, &open);
            if open.len() >= CONSOLES_MAX as usize || strangers.len() >= STRANGERS_MAX {
                let ages = strangers.iter().map(|at| (open[*at].ends.peer.ip(), open[*at].since.elapsed()));
                let at = strangers[gives_way(&ages.collect::<Vec<_>>(), ends.peer.ip())?];
                open.remove(at).end.notify_one();
            }
        }
        let end = Arc::new(Notify::new());
        open.push(Open { ends, is_relay, since: Instant::now(), end: Arc::clone(&end) });
        drop(open);
        let (shared, bytes) = (Arc::clone(shared), AtomicUsize::new(0));
        let account = Arc::new(Account { shared, ends, is_relay, bytes });
        Some(ConsolePlace { consoles: Arc::clone(self), end, account })
    }

    /// Whether a client has logged in by a console at this address.
    pub(super) fn knows(&self, shared: &Shared, address: IpAddr) -> bool {
        let open = self.lock();
        let own = open.iter().filter(|one| !one.is_relay && one.ends.peer.ip() == address);
        let ends: Vec<Ends> = own.map(|one| one.ends).collect();
        drop(open);
        known(shared, &ends).contains(&true)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which of the consoles are strangers', the oldest first.
fn strangers(shared: &Shared, open: &[Open]) -> Vec<usize> {
    let known = known(shared, &open.iter().map(|one| one.ends).collect::<Vec<_>>());
    (0..open.len()).filter(|at| !known[*at] && !open[*at].is_relay).collect()
}

/// Whether the client of each console has authenticated. O(clients).
fn known(shared: &Shared, consoles: &[Ends]) -> Vec<bool> {
    if shared.access.is_open() {
        return vec![true; consoles.len()];
    }
    let mut known = vec![false; consoles.len()];
    let Some(clients) = shared.stats.clients() else { return known };
    clients.visit(|client| {
        if let Transport::Tcp { peer, local } = client.transport
            && let Some(at) = consoles.iter().position(|ends| (ends.peer, ends.local) == (peer, local))
        {
            known[at] |= !client.names().user.is_empty();
        }
    });
    known
}

/// Which of the strangers, the oldest first, gives way to a newcomer.
fn gives_way(strangers: &[(IpAddr, Duration)], newcomer: IpAddr) -> Option<usize> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    strangers.iter().for_each(|(address, _)| *counts.entry(*address).or_default() += 1);
    let most = counts.values().copied().max()?;
    let own = counts.get(&newcomer).copied().unwrap_or_default();
    if own + 1 < most {
        return strangers.iter().position(|(address, _)| counts[address] == most);
    }
    strangers.iter().position(|(_, age)| *age >= STRANGER_AGE_MAX)
}

/// A console's place among all.
pub(super) struct ConsolePlace {
    consoles: Arc<Consoles>,
    end: Arc<Notify>,
    pub(super) account: Arc<Account>,
}

impl ConsolePlace {
    /// Waits until another console takes the place.
    pub(super) async fn is_taken(&self) {
        self.end.notified().await;
    }
}

impl Drop for ConsolePlace {
    fn drop(&mut self) {
        self.consoles.lock().retain(|one| !Arc::ptr_eq(&one.end, &self.end));
    }
}

/// The memory of a console, as a part of what INFO shows for all.
pub(super) struct Account {
    shared: Arc<Shared>,
    ends: Ends,
    is_relay: bool,
    bytes: AtomicUsize,
}

impl Account {
    pub(super) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.shared.stats.console_bytes.fetch_add(bytes, Relaxed);
    }

    pub(super) fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
        self.shared.stats.console_bytes.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.shared.stats.console_bytes.fetch_sub(*self.bytes.get_mut(), Relaxed);
    }
}

/// The browser's bytes, counted from when they arrive until [`Arriving::settle`] says that they are passed on.
pub(super) struct Counted<T> {
    stream: T,
    account: Arc<Account>,
    arriving: Arc<Arriving>,
}

/// Bytes of a message that is not whole yet.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    bytes: AtomicUsize,
}

impl Arriving {
    /// Takes `bytes` of control frames off, or everything when a message has become whole.
    pub(super) fn settle(&self, account: &Account, bytes: usize) {
        let settled = bytes.min(self.bytes.load(Relaxed));
        self.bytes.fetch_sub(settled, Relaxed);
        account.subtract(settled);
    }
}

impl<T> Counted<T> {
    pub(super) fn new(stream: T, account: &Arc<Account>) -> (Self, Arc<Arriving>) {
        let arriving = Arc::new(Arriving::default());
        (Self { stream, account: Arc::clone(account), arriving: Arc::clone(&arriving) }, arriving)
    }

    fn note(&self, count: usize) -> io::Result<()> {
        let before = self.arriving.bytes.fetch_add(count, Relaxed);
        self.account.add(count);
        let is_long = before <= STRANGER_BYTES_MAX && before + count > STRANGER_BYTES_MAX;
        let is_known = || self.account.is_relay || known(&self.account.shared, &[self.account.ends])[0];
        match is_long && !is_known() {
            true => Err(io::Error::other("a console that has not logged in sends a long message")),
            false => Ok(()),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => Poll::Ready(self.note(buffer.filled().len() - before)),
            other => other,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consoles_of_the_address_with_the_most_strangers_give_way() {
        let address = |last: u8| IpAddr::from([127, 0, 0, last]);
        let young = Duration::from_secs(9);
        let strangers = |last: &[u8]| last.iter().map(|last| (address(*last), young)).collect::<Vec<_>>();
        for (of, newcomer, expected) in [
            (&[1, 1, 1, 1][..], 2, Some(0)),
            (&[2, 1, 1, 1], 2, Some(1)),
            (&[1, 1, 1, 1], 1, None),
            (&[1, 2, 3, 4], 5, None),
            (&[1, 1, 2, 2], 2, None),
            (&[1, 1, 2, 2], 3, Some(0)),
        ] {
            assert_eq!(gives_way(&strangers(of), address(newcomer)), expected, "{of:?} {newcomer}");
        }
        let mut strangers = strangers(&[1, 1, 1]);
        strangers[0].1 = STRANGER_AGE_MAX;
        assert_eq!(gives_way(&strangers, address(1)), Some(0), "it has had its time");
        assert_eq!(gives_way(&[], address(1)), None, "all others have logged in");
    }
}
