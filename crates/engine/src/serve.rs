//! Clients that wait for keys: entering them, and serving them when a key may be ready.
//!
//! A write notes the keys that it has changed and that clients wait for ([`Worker::ready`]). The worker that ran it
//! serves the waiters of these keys before it lets go of the locks, in the order they came. Each is run again, as it
//! was sent, and its reply is handed to the host ([`Worker::served`]). That may make further keys ready (BLMOVE); it
//! goes on until no key is left.
//!
//! A waiter runs under the locks of all stripes of its command. The thread tries for those that are missing, out of
//! order, hence without waiting for them; if one is taken, it gives all back and locks the right ones in order. In
//! between others may change the key, even take the elements that were there for the waiter; then it goes on waiting.
//! Only other blocking commands must not: see [`WriteContext::is_reserved`].
//!
//! A waiter may also wait for entries to come of age: it says when to look at it again, and the host does so
//! ([`Engine::look_again`]). Each run says it anew; if that is earlier than before, the host learns of it.
//!
//! A script that has been running for long may hold one of them. Then the key is put aside ([`Worker::blocked_by_script`]), and
//! clients behind that waiter wait too; the host looks at it again before long. The thread that applies a primary's
//! stream leaves such keys to a worker ([`Worker::take_blocked_by_script`]).

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use dunlin_resp::{Protocol, ReplyBuffer};

use crate::{
    command::{Args, Blocking, Run, Wait},
    context::{Environment, Worker, WriteContext},
    execute::{Engine, Request},
    keyspace::{Locked, NEVER, StripeSet, Waiter},
    propagation::LogSwitch,
};

/// A client that the command just run has left waiting.
#[derive(Debug)]
pub struct Blocked {
    /// Its command.
    pub waiter: Arc<Waiter>,
    /// For how many milliseconds; `None` for ever.
    pub timeout_ms: Option<std::num::NonZeroU64>,
}

/// The reply for a client that has waited.
#[derive(Debug)]
pub struct Served {
    /// Its command.
    pub waiter: Arc<Waiter>,
    /// The reply; without one it waits on, but is to be looked at again earlier than it was to be
    /// ([`Waiter::again_ms`]).
    pub reply: Option<Vec<u8>>,
    /// How long serving it took, by [`Worker::clock_ns`].
    pub nanoseconds: u64,
}

/// The work that is left for the waiters of a key.
enum Progress {
    /// Nothing.
    Done,
    /// The next one needs these stripes.
    Needs(StripeSet),
}

/// Enters a client that found nothing, under the locks it looked under.
#[cold]
pub(crate) fn block(
    locked: &mut Locked<'_>,
    request: &Request<'_>,
    wait: Wait<'_>,
    (database, protocol): (usize, Protocol),
    environment: Environment<'_>,
) -> Blocked {
    let keyspace = locked.keyspace();
    let mut stripes = StripeSet::EMPTY;
    for position in request.entry.key_positions(request.words) {
        stripes.insert(keyspace.stripe_of(request.words[position]));
    }
    let mut keys: Vec<(usize, Box<[u8]>)> = Vec::with_capacity(wait.keys.len());
    for key in wait.keys {
        if !keys.iter().any(|(_, known)| **known == **key) {
            keys.push((keyspace.stripe_of(key), Box::from(*key)));
        }
    }
    let waiter = Arc::new(Waiter {
        caller: *environment.caller,
        protocol,
        command: request.entry.command,
        words: request.words.iter().map(|word| Box::from(*word)).collect(),
        settled_words: wait.words,
        database,
        keys,
        stripes,
        value_type: wait.value_type,
        elements_min: wait.elements_min,
        on_loss: wait.on_loss,
        is_gone: AtomicBool::new(false),
        again_ms: AtomicU64::new(wait.again_ms.unwrap_or(NEVER)),
    });
    let mut locked = locked.stripes();
    for (stripe, key) in &waiter.keys {
        locked.stripe_mut(*stripe).queues_or_new().push(key, &waiter);
    }
    Blocked { waiter, timeout_ms: wait.timeout_ms }
}

impl Engine {
    /// Serves the clients that wait for the keys that are ready, then gives the locks back.
    #[cold]
    pub(crate) fn serve_waiters<'k>(
        &'k self,
        mut locked: Locked<'k>,
        environment: Environment<'_>,
        worker: &mut Worker,
    ) {
        if environment.caller.replaying_at_ms > 0 && !environment.caller.follows_primary {
            // The log has what they were served with; clients that still wait found nothing behind it.
            worker.ready.clear();
        }
        while let Some((database, key)) = worker.ready.pop_front() {
            let stripe = self.keyspace.stripe_of(&key);
            let mut progress = Progress::Needs(StripeSet::EMPTY);
            while let Progress::Needs(mut stripes) = progress {
                stripes.insert(stripe);
                if !locked.extend(&stripes) {
                    worker.tell(environment.caller.client);
                    drop(locked);
                    let Some(all) = self.keyspace.lock_set_unless_long(stripes) else {
                        locked = self.keyspace.lock_set(StripeSet::EMPTY);
                        worker.blocked_by_script.0.push((database, key));
                        break;
                    };
                    locked = all;
                }
                progress = serve_key(&mut locked, &self.log, (stripe, database, &key), environment, worker);
            }
        }
        worker.tell(environment.caller.client);
    }

    /// Serves the clients that a script has kept from being served, if it has ended. The caller is inside the gate and
    /// holds no locks.
    pub fn serve_kept_out(&self, environment: Environment<'_>, worker: &mut Worker) {
        worker.ready.extend(worker.blocked_by_script.0.drain(..));
        worker.propagation.begin(&self.log);
        self.serve_waiters(self.keyspace.lock_set(StripeSet::EMPTY), environment, worker);
    }

    /// Runs the command of a client that waits again, though none of its keys has changed, and those of clients that
    /// came before it for those keys. Does nothing if its wait has ended. The caller is inside the gate and holds no
    /// locks.
    pub fn look_again(&self, waiter: &Waiter, environment: Environment<'_>, worker: &mut Worker) {
        worker.ready.extend(waiter.keys.iter().map(|(_, key)| (waiter.database, key.clone())));
        worker.propagation.begin(&self.log);
        self.serve_waiters(self.keyspace.lock_set(StripeSet::EMPTY), environment, worker);
    }

    /// Withdraws a client; false if it has been served already, and `None` if a script has been holding its keys for
    /// long. The caller is inside the gate and holds no locks.
    pub fn withdraw(&self, waiter: &Arc<Waiter>) -> Option<bool> {
        let mut locked = self.keyspace.lock_set_unless_long(waiter.stripes)?;
        Some(remove(&mut locked, waiter))
    }
}

/// Takes a waiter out of all its queues. Returns whether it stood there.
fn remove(locked: &mut Locked<'_>, waiter: &Arc<Waiter>) -> bool {
    let mut locked = locked.stripes();
    let mut found = false;
    for (stripe, key) in &waiter.keys {
        let state = locked.stripe_mut(*stripe);
        if let Some(queues) = state.queues_mut() {
            found |= queues.remove(key, waiter);
            state.drop_empty_queues();
        }
    }
    found
}

/// The error for a client whose command would change the data of a replica.
const UNBLOCKED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

/// Runs the waiters of one key, oldest first, for as long as there is something for them.
fn serve_key(
    locked: &mut Locked<'_>,
    log: &LogSwitch,
    (stripe, database, key): (usize, usize, &[u8]),
    environment: Environment<'_>,
    worker: &mut Worker,
) -> Progress {
    // How many of the oldest want something else, and stay.
    let mut passed = 0;
    loop {
        let queue = locked.stripe(stripe).queues().and_then(|queues| queues.get(database, key));
        let Some((queue, waiter)) = queue.and_then(|queue| Some((queue, queue.get(passed)?))) else {
            return Progress::Done;
        };
        let (waiter, has_on_loss) = (Arc::clone(waiter), queue.has_on_loss());
        if waiter.is_gone() {
            passed += 1;
            continue;
        }
        let mut context = WriteContext::new(locked.stripes(), database, &[], environment, worker);
        let held = context.value_type(key);
        if held != Some(waiter.value_type) && !waiter.on_loss {
            if held.is_none() && !has_on_loss {
                return Progress::Done;
            }
            passed += 1;
            continue;
        }
        if !locked.holds(&waiter.stripes) {
            return Progress::Needs(waiter.stripes);
        }
        let begun = (worker.clock_ns)();
        let reply = run(locked, &waiter, environment, worker);
        let nanoseconds = (worker.clock_ns)().saturating_sub(begun);
        worker.propagation.publish(log, worker.id());
        match reply {
            Ok(reply) => {
                remove(locked, &waiter);
                worker.served.push(Served { waiter, reply: Some(reply), nanoseconds });
            }
            Err(again_ms) => {
                passed += 1;
                let again_ms = again_ms.unwrap_or(NEVER);
                if again_ms < waiter.again_ms.swap(again_ms, Relaxed) {
                    worker.served.push(Served { waiter, reply: None, nanoseconds });
                }
            }
        }
    }
}

/// Runs a waiter's command again. Returns its reply or, if it goes on waiting, when it is to be run once more.
fn run(
    locked: &mut Locked<'_>,
    waiter: &Waiter,
    environment: Environment<'_>,
    worker: &mut Worker,
) -> Result<Vec<u8>, Option<u64>> {
    let Run::Block(handler) = waiter.command.run else { unreachable!("only such commands wait") };
    let words = waiter.settled_words.as_ref().unwrap_or(&waiter.words);
    let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
    let mut reply = ReplyBuffer::default();
    reply.set_protocol(waiter.protocol);
    if environment.caller.follows_primary && !waiter.command.is_read_only() {
        // The command came before the server became a replica, whose data only the primary changes.
        reply.error(UNBLOCKED);
        return Ok(reply.chunks().flatten().copied().collect());
    }
    let mark = reply.mark();
    let caller = waiter.caller.at_time_of(environment.caller);
    let environment = Environment { caller: &caller, ..environment };
    let context = WriteContext::serving(locked.stripes(), waiter.database, environment, worker);
    let mut context = context.of(waiter.command);
    let result = handler(&mut context, &mut Args::new(&words, 1), &mut reply);
    context.end_propagation(&words);
    match result {
        Ok(Blocking::Done) => {}
        Ok(Blocking::Wait(wait)) => return Err(wait.again_ms),
        Err(error) => {
            reply.rewind(mark);
            reply.error(error.line());
        }
    }
    Ok(reply.chunks().flatten().copied().collect())
}
