//! `CLIENT TRACKING` and what belongs to it; what happens behind it is in [`crate::push::tracking`].

use std::time::Duration;

use dunlin_engine::command::{Args, CommandError, CommandResult};
use dunlin_net::Client;
use dunlin_resp::{Protocol, ReplyBuffer, number::parse_integer};

use super::Context;
use crate::session::tracking::{Choice, Tracking};

pub(super) fn tracking(
    context: Context<'_, '_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let switch = args.word();
    let (mut redirect, mut prefixes) = (None, Vec::new());
    let (mut broadcast, mut opt_in, mut opt_out, mut no_loop) = (false, false, false, false);
    while !args.is_empty() {
        if args.token_with("REDIRECT", 1) {
            if redirect.is_some() {
                return Err(CommandError::text("ERR A client can only redirect to a single other client"));
            }
            let id = parse_integer(args.word()).ok_or(CommandError::NotInteger)?;
            let client = u64::try_from(id).ok().and_then(|id| context.executor.clients().find(id));
            let missing = CommandError::text("ERR The client ID you want redirect to does not exist");
            // Nothing is pushed to the primary.
            redirect = Some(client.filter(|client| !client.is_outgoing()).ok_or(missing)?);
        } else if args.token("BCAST") {
            broadcast = true;
        } else if args.token("OPTIN") {
            opt_in = true;
        } else if args.token("OPTOUT") {
            opt_out = true;
        } else if args.token("NOLOOP") {
            no_loop = true;
        } else if args.token_with("PREFIX", 1) {
            prefixes.push(args.word());
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if switch.eq_ignore_ascii_case(b"off") {
        context.executor.stop_tracking(context.session);
        reply.ok();
        return Ok(());
    }
    if !switch.eq_ignore_ascii_case(b"on") {
        return Err(CommandError::Syntax);
    }
    if !broadcast && !prefixes.is_empty() {
        return Err(CommandError::text("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    let before = context.session.tracking.as_deref();
    if before.is_some_and(|before| before.prefixes.is_some() != broadcast) {
        return Err(CommandError::text(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
             re-enabling it with a different mode.",
        ));
    }
    if broadcast && (opt_in || opt_out) {
        return Err(CommandError::text("ERR OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if opt_in && opt_out {
        return Err(CommandError::text("ERR You can't specify both OPTIN mode and OPTOUT mode"));
    }
    let was = before.map(|before| before.choice);
    if (opt_in && was == Some(Choice::OptOut)) || (opt_out && was == Some(Choice::OptIn)) {
        return Err(CommandError::text(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
             re-enabling it with a different mode.",
        ));
    }
    check_prefixes(before, &prefixes)?;
    if broadcast && prefixes.is_empty() {
        // All keys.
        prefixes.push(b"");
    }
    let prefixes = broadcast.then(|| prefixes.into_iter().map(Into::into).collect());
    let choice = match (opt_in, opt_out) {
        (true, _) => Choice::OptIn,
        (_, true) => Choice::OptOut,
        _ => Choice::All,
    };
    let caching = before.is_some_and(|before| before.caching);
    if let Some(target) = &redirect
        && !is_ready(context, target)
    {
        context.flow = context.executor.hold(context.session);
        return Ok(());
    }
    let target = redirect.as_ref().map_or(0, |target| target.id());
    let tracking = Tracking { prefixes, choice, no_loop, redirect: target, caching };
    context.executor.track(context.session, tracking, redirect);
    if broadcast {
        // Batches that are under way may not have seen it: wait for their end.
        let waited = context.outside_gate(|shared| shared.engine.keyspace.close_unless_long().is_some());
        if waited == Some(false) {
            context.flow = context.executor.hold(context.session);
            return Ok(());
        }
        context.executor.act_for(context.session);
    }
    reply.ok();
    Ok(())
}

/// Whether pushes to a client can be written by now. If not, the command is presented again, unless it cannot be or
/// that takes its time: then they wait for the client's worker.
fn is_ready(context: Context<'_, '_, '_>, target: &Client) -> bool {
    const WAIT_MAX: Duration = Duration::from_secs(1);
    if target.id() == context.session.client.id() {
        return true;
    }
    let protocol = if target.protocol.get() == 3 { Protocol::Resp3 } else { Protocol::Resp2 };
    let is_ready = context.executor.queues().prepare_pushes(target, protocol);
    let now = context.executor.now().instant;
    let has_waited = context.session.held_since.is_some_and(|since| now.duration_since(since) >= WAIT_MAX);
    is_ready || context.in_transaction || has_waited
}

/// No prefix may begin another, or a key would be told of twice.
fn check_prefixes(before: Option<&Tracking>, prefixes: &[&[u8]]) -> CommandResult {
    let overlaps = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
    let refusal = |prefix: &[u8], which: &str, other: &[u8]| {
        let text = [
            &b"ERR Prefix '"[..],
            prefix,
            b"' overlaps with ",
            which.as_bytes(),
            b" prefix '",
            other,
            b"'. Prefixes for a single client must not overlap.",
        ];
        CommandError::quoting("", &text.concat())
    };
    let existing = before.and_then(|before| before.prefixes.as_ref());
    for (at, prefix) in prefixes.iter().enumerate() {
        let known = existing.into_iter().flatten().find(|other| overlaps(prefix, other));
        if let Some(other) = known {
            return Err(refusal(prefix, "an existing", other));
        }
        if let Some(other) = prefixes[at + 1..].iter().find(|other| overlaps(prefix, other)) {
            return Err(refusal(prefix, "another provided", other));
        }
    }
    Ok(())
}

pub(super) fn tracking_info(
    context: Context<'_, '_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let tracking = context.session.tracking.as_deref();
    let is = |what: fn(&Tracking) -> bool| tracking.is_some_and(what);
    let flags: Vec<&str> = [
        (tracking.is_none(), "off"),
        (tracking.is_some(), "on"),
        (is(|tracking| tracking.prefixes.is_some()), "bcast"),
        (is(|tracking| tracking.choice == Choice::OptIn), "optin"),
        (is(|tracking| tracking.choice == Choice::OptIn && tracking.caching), "caching-yes"),
        (is(|tracking| tracking.choice == Choice::OptOut), "optout"),
        (is(|tracking| tracking.choice == Choice::OptOut && tracking.caching), "caching-no"),
        (is(|tracking| tracking.no_loop), "noloop"),
        (tracking.is_some() && context.session.client.broken_redirection.get() > 0, "broken_redirect"),
    ]
    .into_iter()
    .filter_map(|(holds, name)| holds.then_some(name))
    .collect();
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(redirection(tracking));
    reply.bulk(b"prefixes");
    let prefixes = tracking.and_then(|tracking| tracking.prefixes.as_ref());
    reply.array(prefixes.map_or(0, |prefixes| prefixes.len()));
    prefixes.into_iter().flatten().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}

/// The client that is told in place of this one, 0 for none, −1 if nothing is tracked.
fn redirection(tracking: Option<&Tracking>) -> i64 {
    tracking.map_or(-1, |tracking| tracking.redirect as i64)
}

pub(super) fn get_redirection(
    context: Context<'_, '_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    reply.integer(redirection(context.session.tracking.as_deref()));
    Ok(())
}

pub(super) fn caching(
    context: Context<'_, '_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let Some(tracking) = &mut context.session.tracking else {
        return Err(CommandError::text(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
             mode enabled",
        ));
    };
    let word = args.word();
    if word.eq_ignore_ascii_case(b"yes") {
        if tracking.choice != Choice::OptIn {
            return Err(CommandError::text(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
    } else if word.eq_ignore_ascii_case(b"no") {
        if tracking.choice != Choice::OptOut {
            return Err(CommandError::text(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
    } else {
        return Err(CommandError::Syntax);
    }
    tracking.caching = true;
    context.executor.note_tracking(context.session);
    reply.ok();
    Ok(())
}
