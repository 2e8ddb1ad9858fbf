//! Scripts and functions at work: how they run, and which commands they may call. Their texts and compiled forms are in [`crate::lua`].
//!
//! ```text
//! EVAL ─▶ ScriptCache (shared)  ─▶ Compiled (a worker's): Machine ──redis.call──▶ Calls ─▶ Transaction
//!         by SHA-1, text, flags    compiled on first use                          checks   under locks
//! FCALL ▶ LibraryCache (shared) ─▶ LoadedLibraries (a worker's): LibraryMachine ─▶ …
//! ```
//!
//! A script runs as a transaction: under the locks of the stripes of its declared keys if its text shows that it
//! touches no others, or else while no other command runs. Decision 0010 has the reasons.

mod calls;

use std::{rc::Rc, sync::Arc};

use dunlin_engine::{
    Caller, Footprint,
    command::{CommandError, CommandResult},
};
use dunlin_net::Next;
use dunlin_resp::ReplyBuffer;
use dunlin_scripting::{ScriptFlags, Sha, Shebang};

use self::calls::{Calls, Name, Who};
use crate::{
    admission::{Check, MASTERDOWN, Slots},
    cluster::slots_of,
    executor::{Flow, ServerContext},
    lua::{Compiled, CompiledScript, Operands, Script, key_access, not_compiled, parse},
    push::monitor,
};

/// The script of that name, compiled.
pub(crate) fn find(context: &mut ServerContext<'_, '_>, sha: &Sha) -> Option<Rc<CompiledScript>> {
    let cache = &context.shared.scripts;
    let compiled = &mut context.executor.compiled;
    if let Some(script) = compiled.get(cache, sha) {
        return Some(script);
    }
    let script = cache.get(sha)?;
    compile(compiled, &script).ok()
}

/// Takes a script into the cache, compiled.
pub(crate) fn load(
    context: &mut ServerContext<'_, '_>,
    text: &[u8],
) -> Result<Rc<CompiledScript>, CommandError> {
    let sha = Sha::of(text);
    if let Some(script) = find(context, &sha) {
        return Ok(script);
    }
    let Shebang { flags, text: code } = parse(text)?;
    let mut machine = context.executor.compiled.take_machine();
    let loaded = machine.load(sha, code);
    let table = &context.shared.commands;
    let keeps_to_declared = loaded.is_ok()
        && machine.proves(&sha, &|words, list| key_access::keeps_to_declared(table, words, list));
    context.executor.compiled.put_machine(machine);
    context.executor.publish_heaps();
    loaded.map_err(not_compiled)?;
    let script = Arc::new(Script { sha, text: text.to_vec(), flags, keeps_to_declared });
    context.shared.scripts.add(Arc::clone(&script));
    Ok(context.executor.compiled.add(&script))
}

/// Compiles a script that another worker has taken in.
fn compile(compiled: &mut Compiled, script: &Arc<Script>) -> Result<Rc<CompiledScript>, CommandError> {
    let code = parse(&script.text)?.text;
    let mut machine = compiled.take_machine();
    let loaded = machine.load(script.sha, code);
    compiled.put_machine(machine);
    loaded.map_err(not_compiled)?;
    Ok(compiled.add(script))
}

/// Shows a command that runs a script to monitors, before anything else is done.
#[inline]
pub(crate) fn show(context: &mut ServerContext<'_, '_>, words: &[&[u8]]) {
    if context.shared.monitor.is_watched() {
        let is_alone = !context.in_transaction;
        context
            .executor
            .show(context.session, is_alone, |database, origin| monitor::plain_line(words, database, origin));
    }
}

/// Runs a script for a client and appends its reply.
pub(crate) fn run(
    context: &mut ServerContext<'_, '_>,
    script: &Script,
    Operands { words, keys, arguments, .. }: Operands<'_>,
    read_only: bool,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let who = Who { name: Name::Script(script.sha), words };
    let plan = Plan { flags: script.flags, keeps_to_declared: script.keeps_to_declared, read_only, who };
    let mut machine = context.executor.compiled.take_machine();
    let result =
        plan.carry_out(context, keys, |calls| machine.run(&script.sha, keys, arguments, calls, reply));
    context.executor.compiled.put_machine(machine);
    context.executor.publish_heaps();
    result
}

/// Calls a function for a client and appends its reply.
pub(crate) fn call<'w>(
    context: &mut ServerContext<'_, '_>,
    name: &[u8],
    operands: impl FnOnce() -> Result<Operands<'w>, CommandError>,
    read_only: bool,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let cache = &context.shared.libraries;
    let callable = context.executor.libraries.find(cache, name)?;
    let Operands { words, keys, arguments, .. } = operands()?;
    let keeps_to_declared = callable.keeps_to_declared();
    let who = Who { name: Name::Function(&callable.function().name), words };
    let plan = Plan { flags: callable.function().flags, keeps_to_declared, read_only, who };
    let mut libraries = std::mem::take(&mut context.executor.libraries);
    let result =
        plan.carry_out(context, keys, |calls| libraries.call(&callable, keys, arguments, calls, reply));
    context.executor.libraries = libraries;
    context.executor.publish_heaps();
    result
}

/// How a script is to be run.
struct Plan<'w> {
    flags: ScriptFlags,
    keeps_to_declared: bool,
    /// Whether the client asked for nothing to be changed.
    read_only: bool,
    who: Who<'w>,
}

impl Plan<'_> {
    /// Runs a script as a transaction, or as a part of the one that it is in.
    fn carry_out<'a, 'k>(
        self,
        context: &mut ServerContext<'a, 'k>,
        keys: &[&[u8]],
        script: impl FnOnce(&mut Calls<'_, 'a, 'k>) -> Result<(), Vec<u8>>,
    ) -> CommandResult {
        let shared = context.shared;
        // Its flags were asked when it was admitted, alone or with the transaction that it is in. A script without flags says
        // nothing about stale data.
        let is_stale =
            shared.replication.conditions(context.executor.config.config()).has(Check::StaleReplica);
        if is_stale && self.flags.has(ScriptFlags::COMPATIBLE) {
            return Err(MASTERDOWN);
        }
        let short_of_memory = context.executor.is_short_of_all(&[], context.turn.inside.as_ref());
        let no_writes = self.flags.has(ScriptFlags::NO_WRITES);
        if !self.flags.has(ScriptFlags::COMPATIBLE) {
            if self.flags.has(ScriptFlags::NO_CLUSTER) && shared.cluster.is_on() {
                return Err(CommandError::text(
                    "ERR Can not run script on cluster, 'no-cluster' flag is set.",
                ));
            }
            if self.read_only && !no_writes {
                return Err(CommandError::text(
                    "ERR Can not execute a script with write flag using *_ro command.",
                ));
            }
        }
        let engine = &shared.engine;
        let mut begun = None;
        let mut around = context.transaction.take();
        let transaction = match &mut around {
            Some(transaction) => &mut **transaction,
            None => {
                let mut footprint = Footprint::default();
                if self.keeps_to_declared {
                    keys.iter().for_each(|key| footprint.add_key(&engine.keyspace, key));
                } else {
                    footprint = Footprint::everything();
                }
                let transaction =
                    engine.begin(&footprint, &context.executor.worker, &mut context.turn.inside)?;
                if !engine.is_admitted(context.executor.environment()) {
                    // A failover, a pause or another role came while it waited for the gate.
                    context.executor.end_transaction(shared, transaction, context.turn);
                    context.flow = context.executor.hold(context.session);
                    return Ok(());
                }
                context.executor.worker.mark_client();
                begun.insert(transaction)
            }
        };
        context.executor.saw_data.note();
        let in_transaction = std::mem::replace(&mut context.in_transaction, true);
        let caller = context.executor.caller;
        context.executor.caller = Caller { deny_blocking: true, in_script: true, ..caller };
        let read_only = self.read_only || no_writes;
        let (flags, who) = (self.flags, self.who);
        let slots = if shared.cluster.is_on() { slots_of(keys.iter().copied()) } else { Slots::None };
        let mut calls = Calls::new(context, transaction, flags, read_only, short_of_memory, slots, who);
        let result = script(&mut calls);
        calls.end();
        context.executor.worker.fieldsets.end_script();
        context.executor.caller = caller;
        context.in_transaction = in_transaction;
        context.transaction = around;
        if let Some(transaction) = begun {
            context.executor.end_transaction(shared, transaction, context.turn);
        }
        if context.executor.is_abandoned {
            context.flow = Flow::Stop(Next::CloseNow);
        }
        // A command of the script has counted the error, or `Calls::note_error` has.
        context.has_failed |= result.is_err();
        result.map_err(|line| CommandError::Text(line.into()))
    }
}
